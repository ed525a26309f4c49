#!/bin/bash
# vm.sh PYTEST-ARGUMENT...: run tests in a whole Debian with systemd, in QEMU, once for each way to start the server.
# KVM is not used: it is not everywhere, and a machine that has it need not let us. Needs root and `make install`.
set -eu
: "${VM_TIMEOUT_S:=5400}"
CHECKOUT=$(cd "$(dirname "$0")/../.." && pwd)
cd "$CHECKOUT"
# of several names, `command -v` is content with one
{ command -v qemu-system-x86_64 && command -v mmdebstrap && command -v mke2fs; } >/dev/null ||
    { apt-get update -q && apt-get install -y -q --no-install-recommends qemu-system-x86 mmdebstrap e2fsprogs; }

BED=$(mktemp -d /var/tmp/mcp_exec_bed_XXXXXX)
trap 'rm -rf "$BED"' EXIT
ROOT=$BED/root
.venv/bin/python -m build -w -o "$BED/wheel" . >/dev/null
mmdebstrap --quiet --variant=apt --include=systemd,systemd-sysv,udev,dbus,dbus-user-session,libpam-systemd,passwd,iproute2 \
    --include=python3,python3-venv,libseccomp2,linux-image-cloud-amd64 trixie "$ROOT"

# The guest has no network: its Python packages are installed here, with this machine's settings for pip, if any.
for file in /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
    [ ! -e "$file" ] || install -D "$file" "$ROOT$file"
done
cp /etc/resolv.conf "$ROOT/etc/resolv.conf"
cp "$BED"/wheel/*.whl "$ROOT/tmp"
chroot "$ROOT" python3 -m venv /opt/mcp-exec
chroot "$ROOT" sh -c '/opt/mcp-exec/bin/python -m pip install -qq "$(echo /tmp/*.whl)[sandbox]" pytest'

mkdir -p "$ROOT/srv/bed/units"
cp -r pyproject.toml tests "$ROOT/srv/bed"
cp -r deploy/systemd/. "$ROOT/srv/bed/units"
printf '%s\n' "$@" >"$ROOT/srv/bed/selection"
chmod -R a+rX "$ROOT/srv/bed"
cp tests/beds/vm_bed.service "$ROOT/etc/systemd/system/bed.service"
chroot "$ROOT" systemctl -q enable bed.service
chroot "$ROOT" systemctl -q mask serial-getty@ttyS0.service  # it would hang up on the console that the tests write to
chroot "$ROOT" useradd -m -u 1000 tester

mke2fs -q -t ext4 -d "$ROOT" "$BED/disk.img" 4G
status=0
timeout -k 10 "$VM_TIMEOUT_S" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 3072 -nographic -no-reboot \
    -kernel "$ROOT"/boot/vmlinuz-* -initrd "$ROOT"/boot/initrd.img-* -drive file="$BED/disk.img",if=virtio,format=raw \
    -append "root=/dev/vda rw console=ttyS0 quiet loglevel=1 systemd.show_status=0 panic=-1" -nic none -monitor none \
    -serial stdio -serial file:"$BED/status" </dev/null || status=$?
[ "$status" = 0 ] || echo "qemu ended with $status"

# Nothing else says how it went in there; a bed that did not say that it passed has failed.
failed=0
for name in vm-service vm-root vm-user-service vm-user-scope vm-user-login vm-user-alone; do
    if grep -qE "^$name 0 .*[1-9][0-9]* passed" "$BED/status"; then
        echo "$name: passed"
    else
        echo "$name: FAILED: $(grep "^$name " "$BED/status" || echo "the guest hung, died, or took over $VM_TIMEOUT_S s")"
        failed=1
    fi
done
exit $failed
