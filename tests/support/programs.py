"""Beginnings of programs that try things and print what came of it."""

#: attempt(action, *words) gives "done" or the name of the errno; call and syscall raise OSError
ERRNO = """
import ctypes, errno, json, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(action, *words):
    try:
        action(*words)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
def call(name, *words):
    words = [word.encode() if isinstance(word, str) else word for word in words]
    if getattr(libc, name)(*words) < 0:
        raise OSError(ctypes.get_errno(), name)
def syscall(number, *words):
    words = [word.encode() if isinstance(word, str) else ctypes.c_long(word) if isinstance(word, int) else word
             for word in words]
    if libc.syscall(ctypes.c_long(number), *words) < 0:
        raise OSError(ctypes.get_errno(), str(number))
"""
