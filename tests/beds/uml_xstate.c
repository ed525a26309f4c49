/* Preloaded into linux.uml (6.1), which knows registers up to AVX-512 and passes a buffer of that size. Since Linux
 * refuses to set less than all of the extended state, UML dies at its first process on CPUs that have more (AMX):
 * "ptrace set fp regs failed, errno = 14". Here the rest is filled in with what the process has. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

static long (*real)(int, ...);
static char whole[1 << 16] __attribute__((aligned(64)));

__attribute__((constructor)) static void find(void) { real = (long (*)(int, ...))dlsym(RTLD_NEXT, "ptrace"); }

long ptrace(enum __ptrace_request request, ...)
{
    va_list words;
    va_start(words, request);
    long pid = va_arg(words, long);
    void *address = va_arg(words, void *);
    struct iovec *data = va_arg(words, struct iovec *);
    va_end(words);
    if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE) {
        struct iovec all = {whole, sizeof whole};
        if (real(PTRACE_GETREGSET, pid, address, &all) == 0 && all.iov_len > data->iov_len) {
            memcpy(whole, data->iov_base, data->iov_len);
            return real(request, pid, address, &all);
        }
    }
    return real(request, pid, address, data);
}
