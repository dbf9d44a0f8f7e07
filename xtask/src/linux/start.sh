# Runs as the first process of a Debian system, before a script with cases. T, P1, P2 and the secrets are set above.
# Lines for the host begin with "== ": passed CASE, failed CASE, ask EVENT, end.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec </dev/null >/dev/ttyS0 2>&1

run() { # CASE: runs the function of that name in a shell that ends with the first failure
    echo "-- $1"
    # Not as a condition: there -e would be ignored.
    (set -eux -o pipefail; "$1")
    if [ $? = 0 ]; then echo "== passed $1"; else echo "== failed $1"; fi
}

must_fail() { if "$@"; then return 1; fi; }

until_true() { # SECONDS COMMAND...
    local left=$1; shift
    until "$@"; do
        left=$((left - 1)); [ $left -gt 0 ] || return 1; sleep 1
    done
}

finish() { # turns the machine off
    echo "== end"
    sync
    echo o >/proc/sysrq-trigger
    sleep 10
}

/lib/systemd/systemd-udevd --daemon
udevadm trigger --action=add; udevadm settle
hostname linux
ip link set lo up
for number in 0 1; do
    ip link set "eth$number" up
    ip address add "10.0.$((number + 2)).15/24" dev "eth$number"
done
modprobe -a iscsi_tcp xfs ext4
mkdir -p /run/lock/iscsi /etc/iscsi
echo "InitiatorName=iqn.2026-11.lunette:guest" >/etc/iscsi/initiatorname.iscsi
iscsid
uname -a; iscsiadm --version
