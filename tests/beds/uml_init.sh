#!/bin/bash
# Inside a guest, as its init: the tests as root, or as an ordinary user with a delegated cgroup subtree.
# The environment comes from the kernel's command line: IDENTITY, BED (folder for results) and CHECKOUT. See uml.sh.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
for place in /run /tmp /var/tmp /dev/shm; do
    mkdir -p "$place"
    mount -t tmpfs -o mode=1777 tmpfs "$place"
done
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
USER_ID=61234
mapfile -t TESTS <"$BED/selection"

# run_bed VENV COMMAND...: the guest's only way to tell how it went is the exit status in a file.
run_bed() {
    local name=uml-$IDENTITY venv=$1
    shift
    echo "=== $name: Linux $(uname -r)"
    "$@" env -i PATH="$venv/bin:$PATH" HOME=/tmp LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 MCP_EXEC_MUST_JAIL=1 \
        MCP_EXEC_BED="$name" MCP_EXEC_IDENTITIES="$IDENTITY" MCP_EXEC_EXPECT=cgroup \
        "$venv/bin/python" -m pytest -p no:cacheprovider -v --durations=25 "${TESTS[@]}" 2>&1 | tee "$BED/$name.out"
    echo "${PIPESTATUS[0]}" >"$BED/$name.status"
}

if [ "$IDENTITY" = root ]; then
    cd "$CHECKOUT" && run_bed "$CHECKOUT/.venv"
else
    # Delegation as systemd does it: the controllers at the root, the directory and the files that organise it to the user.
    cd /sys/fs/cgroup
    echo "+cpu +memory +pids" >cgroup.subtree_control
    mkdir -p delegated/boot
    chown "$USER_ID:$USER_ID" delegated{,/boot}{,/cgroup.procs,/cgroup.subtree_control,/cgroup.threads}
    # Into the subtree while still root: to move a process takes write access to the common ancestor.
    echo $$ >delegated/boot/cgroup.procs
    cd "$BED" && run_bed "$BED/venv" setpriv --reuid=$USER_ID --regid=$USER_ID --clear-groups
fi

echo o >/proc/sysrq-trigger
sleep 60
