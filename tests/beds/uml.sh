#!/bin/bash
# uml.sh PYTEST-ARGUMENT...: run tests under User-Mode Linux, as root and as an ordinary user, in a guest each.
# A kernel of 2022 with cgroup v2 and without Landlock, on this machine's file system. Needs root and `make install`.
set -eu
: "${UML_TIMEOUT_S:=1800}"
CHECKOUT=$(cd "$(dirname "$0")/../.." && pwd)
cd "$CHECKOUT"
# of several names, `command -v` is content with one
{ command -v linux.uml && command -v gcc; } >/dev/null ||
    { apt-get update -q && apt-get install -y -q --no-install-recommends user-mode-linux gcc libc6-dev iproute2; }

# What an ordinary user can read and write: neither the checkout nor its interpreter need be. A folder of its own in
# the root, since a jail shows the folders above its interpreter, and tests look for those of the host that it must not.
BED=$(mktemp -d /mcp_exec_bed_XXXXXX)
trap 'rm -rf "$BED"' EXIT
.venv/bin/python -m virtualenv -q -p /usr/bin/python3 "$BED/venv"
"$BED/venv/bin/python" -m pip install -qq '.[sandbox]' pytest
cp -r pyproject.toml tests "$BED"
printf '%s\n' "$@" >"$BED/selection"
chmod -R a+rX "$BED"
chown 61234:61234 "$BED"
gcc -O2 -Wall -shared -fPIC -o "$BED/xstate.so" tests/beds/uml_xstate.c

# A guest has one processor and the test-suite's two identities need not share it.
boot() {
    LD_PRELOAD="$BED/xstate.so" timeout -k 10 "$UML_TIMEOUT_S" linux.uml mem=2048M rootfstype=hostfs rootflags=/ rw \
        con=null con0=null,fd:1 quiet init="$CHECKOUT/tests/beds/uml_init.sh" \
        IDENTITY="$1" BED="$BED" CHECKOUT="$CHECKOUT" </dev/null || echo "linux.uml ended with $?"
}
boot root &
boot user
wait

# Neither a guest's nor its kernel's exit status reaches us; a bed that did not say that it passed has failed.
failed=0
for name in uml-root uml-user; do
    status=$(cat "$BED/$name.status" 2>/dev/null || echo none)
    if [ "$status" = 0 ] && tail -n 1 "$BED/$name.out" | grep -qE '[1-9][0-9]* passed'; then
        echo "$name: passed"
    else
        echo "$name: FAILED (exit status $status; none means that the guest hung, died, or took over $UML_TIMEOUT_S s)"
        failed=1
    fi
done
exit $failed
