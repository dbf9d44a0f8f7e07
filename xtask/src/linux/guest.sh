# The cases of open-iscsi and dm-multipath over disks of the configuration; start.sh stands above.

device() { readlink -f "/dev/disk/by-path/ip-$1-iscsi-$T-lun-$2"; }
is_there() { [ -b "$(device "$1" "$2")" ]; }
set_key() { iscsiadm -m node -T "$T" -p "$1" -o update -n "$2" -v "$3"; }

add_portal() { iscsiadm -m node -T "$T" -p "$1" -o new; secure "$1"; }

secure() { # PORTAL: with mutual CHAP and both digests
    set_key "$1" node.session.auth.authmethod CHAP
    set_key "$1" node.session.auth.username linux
    set_key "$1" node.session.auth.password "$SECRET"
    set_key "$1" node.session.auth.username_in lunette
    set_key "$1" node.session.auth.password_in "$OTHER_SECRET"
    set_key "$1" node.conn[0].iscsi.HeaderDigest CRC32C
    set_key "$1" node.conn[0].iscsi.DataDigest CRC32C
    set_key "$1" node.session.timeo.replacement_timeout 60
    set_key "$1" node.conn[0].timeo.noop_out_interval 2
    set_key "$1" node.conn[0].timeo.noop_out_timeout 2
}

verify() { # DEVICE SECONDS: random writes that are read again and compared
    fio --name=verify --filename="$1" --direct=1 --ioengine=libaio --iodepth=16 --rw=randrw --bsrange=512-64k \
        --size=64M --verify=crc32c --verify_fatal=1 --verify_backlog=256 --time_based --runtime="$2" --output-format=terse
}

discovery() { iscsiadm -m discovery -t sendtargets -p "$P1" | grep -F "$T"; }

a_wrong_secret() {
    iscsiadm -m discovery -t sendtargets -p "$P1" -o delete || true
    add_portal "$P1"
    set_key "$P1" node.session.auth.password "wrong-secret-12"
    must_fail iscsiadm -m node -T "$T" -p "$P1" --login
    set_key "$P1" node.session.auth.password "$SECRET"
}

login_with_chap_and_digests() {
    iscsiadm -m node -T "$T" -p "$P1" --login
    until_true 30 is_there "$P1" 1
    iscsiadm -m session -P 3 | grep -E "HeaderDigest: CRC32C"
    iscsiadm -m session -P 3 | grep -E "DataDigest: CRC32C"
    [ "$(blockdev --getsize64 "$(device "$P1" 0)")" = $((512 << 20)) ]
    [ "$(cat "/sys/block/$(basename "$(device "$P1" 0)")/device/vendor")" = "LUNETTE " ]
}

a_file_system() { # NAME MAKE CHECK...
    local disk; disk=$(device "$P1" 0)
    wipefs -a "$disk"
    $2 "$disk"
    mount -t "$1" "$disk" /mnt
    cp -a /usr/bin /usr/sbin /etc /mnt/
    sync -f /mnt
    umount /mnt
    shift 2
    "$@" "$disk"
    echo 3 >/proc/sys/vm/drop_caches
    mount "$disk" /mnt
    diff -r --no-dereference /usr/bin /mnt/bin
    diff -r --no-dereference /etc /mnt/etc
    rm -r /mnt/bin
    fstrim -v /mnt
    umount /mnt
    "$@" "$disk"
}

ext4() { a_file_system ext4 "mkfs.ext4 -q -F" e2fsck -f -n; }
xfs() { a_file_system xfs "mkfs.xfs -q -f" xfs_repair -n; }

fio_verifies() { verify "$(device "$P1" 0)" 10; }

discard_gives_zeroes() {
    local disk; disk=$(device "$P1" 0)
    [ "$(lsblk -ndo DISC-MAX -b "$disk")" -gt 0 ]
    dd if=/dev/urandom of="$disk" bs=1M count=4 oflag=direct
    blkdiscard "$disk"
    cmp -n $((4 << 20)) "$disk" /dev/zero
}

the_disk_grows() {
    local disk; disk=$(device "$P1" 1)
    echo "== ask grow"
    grown() { iscsiadm -m node -T "$T" -p "$P1" -R >/dev/null; [ "$(blockdev --getsize64 "$disk")" = $((640 << 20)) ]; }
    until_true 30 grown
}

reservations() {
    local disk other; disk=$(device "$P1" 0)
    iscsiadm -m iface -I other -o new
    iscsiadm -m iface -I other -o update -n iface.initiatorname -v iqn.2026-11.lunette:other
    iscsiadm -m node -T "$T" -p "$P1" -I other -o new
    set_key "$P1" node.session.auth.authmethod CHAP
    set_key "$P1" node.session.auth.username linux
    set_key "$P1" node.session.auth.password "$SECRET"
    before=$(ls /dev/sd* | sort)
    iscsiadm -m node -T "$T" -p "$P1" -I other --login
    appeared() { other=$(comm -13 <(echo "$before") <(ls /dev/sd* | sort) | while read -r d; do
        [ "$(cat /sys/block/"$(basename "$d")"/device/scsi_device/*/device/wwid)" = \
          "$(cat /sys/block/"$(basename "$disk")"/device/wwid)" ] && echo "$d"; done); [ -n "$other" ]; }
    until_true 30 appeared
    sg_persist --out --register --param-sark=a1 "$disk"
    sg_persist --out --register --param-sark=b2 "$other"
    sg_persist --out --reserve --param-rk=a1 --prout-type=1 "$disk"
    sg_persist --in --read-reservation "$other" | grep -i "Write Exclusive"
    dd if=/dev/zero of="$disk" bs=4k count=1 oflag=direct
    must_fail dd if=/dev/zero of="$other" bs=4k count=1 oflag=direct
    sg_persist --out --preempt --param-rk=b2 --param-sark=a1 --prout-type=1 "$other"
    dd if=/dev/zero of="$other" bs=4k count=1 oflag=direct
    must_fail dd if=/dev/zero of="$disk" bs=4k count=1 oflag=direct
    sg_persist --out --clear --param-rk=b2 "$other"
    iscsiadm -m node -T "$T" -p "$P1" -I other --logout
}

during() { # EVENT...: while fio verifies, without an error
    local disk; disk=$(device "$P1" 0)
    verify "$disk" 20 & local fio=$!
    sleep 4
    for event in "$@"; do echo "== ask $event"; sleep 6; done
    wait $fio
}

the_server_restarts() { during restart; }
the_server_is_killed() { during kill; }

multipath_over_two_portals() {
    add_portal "$P2"
    iscsiadm -m node -T "$T" -p "$P2" --login
    until_true 30 is_there "$P2" 0
    for portal in "$P1" "$P2"; do set_key "$portal" node.session.timeo.replacement_timeout 3; done
    iscsiadm -m node -T "$T" --logout
    iscsiadm -m node -T "$T" -p "$P1" --login
    iscsiadm -m node -T "$T" -p "$P2" --login
    until_true 30 is_there "$P2" 0
    printf 'defaults {\n find_multipaths yes\n user_friendly_names yes\n polling_interval 1\n no_path_retry queue\n}\n' >/etc/multipath.conf
    modprobe -a dm-multipath dm-round-robin dm-service-time
    multipathd
    two_maps() { [ "$(multipath -ll | grep -c 'LUNETTE')" = 2 ]; }
    until_true 30 two_maps
    local map; map=/dev/mapper/$(dmsetup ls --target multipath | sort | head -n 1 | cut -f 1)
    verify "$map" 30 & local fio=$!
    sleep 5
    ip link set eth1 down
    one_lost() { multipath -ll | grep -E 'failed (faulty|shaky)|faulty'; }
    until_true 30 one_lost
    sleep 5
    ip link set eth1 up
    ip address replace 10.0.3.15/24 dev eth1
    all_back() { [ "$(multipath -ll | grep -c 'active ready running')" = 4 ]; }
    until_true 60 all_back
    wait $fio
}

logout() {
    multipath -F || true
    iscsiadm -m node -T "$T" --logout
    must_fail is_there "$P1" 0
}

for case in discovery a_wrong_secret login_with_chap_and_digests ext4 xfs fio_verifies discard_gives_zeroes \
    the_disk_grows reservations the_server_restarts the_server_is_killed multipath_over_two_portals logout; do
    run $case
done
