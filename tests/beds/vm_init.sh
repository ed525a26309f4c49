#!/bin/bash
# Inside the guest, as root: the same tests for each way in which a server comes to run under systemd. See vm.sh.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
BED=/srv/bed
OUT=/run/bed
mkdir -p $OUT
chmod 1777 $OUT
mapfile -t TESTS <$BED/selection

# test_command NAME IDENTITY EXPECTED-MECHANISM: the tests, as one command line in the array COMMAND.
test_command() {
    COMMAND=(/usr/bin/env -C $BED PATH=/opt/mcp-exec/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1 MCP_EXEC_MUST_JAIL=1
        "MCP_EXEC_BED=$1" "MCP_EXEC_IDENTITIES=$2" "MCP_EXEC_EXPECT=$3"
        /opt/mcp-exec/bin/python -m pytest -p no:cacheprovider -v "${TESTS[@]}")
}

# run_bed NAME COMMAND...: its output to the console, and how it went to the second serial port.
run_bed() {
    local name=$1
    shift
    echo "=== $name: Linux $(uname -r), $(systemctl --version | head -n 1)"
    "$@" 2>&1 | tee "$OUT/$name"
    echo "$name ${PIPESTATUS[0]} $(tail -n 1 "$OUT/$name")" >/dev/ttyS1
}

# shipped_unit FOLDER-FOR-UNITS SOURCE: our unit file as it is shipped, with the tests in place of the server.
shipped_unit() {
    mkdir -p "$1/mcp-exec.service.d"
    cp "$2" "$1/mcp-exec.service"
    cat >"$1/mcp-exec.service.d/tests.conf" <<EOF
[Service]
Type=oneshot
Restart=no
TimeoutStartSec=infinity
UnsetEnvironment=MCP_EXEC_TRANSPORT MCP_EXEC_ADDR
ExecStart=
ExecStart=${COMMAND[*]@Q}
StandardOutput=file:$OUT/unit
StandardError=inherit
EOF
}

# start_shipped COMMAND...: start the unit, show what it wrote while it runs; the exit status is the unit's.
start_shipped() {
    install -m 666 /dev/null $OUT/unit
    tail -f $OUT/unit &
    local tail=$! status=0
    "$@" || status=$?
    sleep 1
    kill $tail
    return $status
}

as_tester() { runuser -u tester -- env XDG_RUNTIME_DIR=/run/user/1000 "$@"; }

test_command vm-service user cgroup
shipped_unit /etc/systemd/system $BED/units/mcp-exec.service
systemctl daemon-reload
run_bed vm-service start_shipped systemctl start mcp-exec.service

test_command vm-root root cgroup
run_bed vm-root systemd-run --quiet --wait --pipe --collect -p Delegate=yes "${COMMAND[@]}"

loginctl enable-linger tester
systemctl start user@1000.service
test_command vm-user-service user cgroup
shipped_unit /home/tester/.config/systemd/user $BED/units/user/mcp-exec.service
chown -R tester: /home/tester/.config
as_tester systemctl --user daemon-reload
run_bed vm-user-service start_shipped as_tester systemctl --user start mcp-exec.service

test_command vm-user-scope user cgroup
run_bed vm-user-scope as_tester systemd-run --user --scope --quiet -p Delegate=yes "${COMMAND[@]}"

# As after a login: nobody prepared anything, but the user's manager can be asked.
test_command vm-user-login user cgroup
run_bed vm-user-login su -l tester -c "${COMMAND[*]@Q}"

loginctl disable-linger tester
systemctl stop user@1000.service
test_command vm-user-alone user fallback
run_bed vm-user-alone setpriv --reuid=1000 --regid=1000 --clear-groups "${COMMAND[@]}"
