# The cases of open-iscsi behind a tunnel; start.sh and guest.sh stand above. The third disk is a tar of lunette and the
# folder of a client, whose certificate has the name of this initiator. TLS_ADDRESS and TLS_PORT are those of a portal.

mkdir -p /tunnel
tar -x -C /tunnel -f /dev/vdc
TUNNEL=127.0.0.1:3260

the_tunnel_starts() {
    # It would take the disks, which it knows.
    multipathd shutdown || true
    # The portal is at a loopback address of the other system, which its server names in answers to discovery.
    sysctl -q -w net.ipv4.conf.eth0.route_localnet=1
    ip route delete local 127.0.0.0/8 dev lo table local
    ip route add "$TLS_ADDRESS" via 10.0.2.2 dev eth0 src 10.0.2.15
    /tunnel/lunette tunnel --listen "$TUNNEL" --to "iscsis://$TLS_ADDRESS:$TLS_PORT?tls=/tunnel/client" >/tunnel/urls &
    listens() { grep -q -F "$TUNNEL" /tunnel/urls; }
    until_true 30 listens
}

discovery_names_the_tunnel() {
    # Without -I it would be by the name of each interface, and the certificate has one name.
    [ "$(iscsiadm -m discovery -t sendtargets -p "$TUNNEL" -I default)" = "$TUNNEL,2 $T" ]
}

a_name_that_the_certificate_lacks() {
    iscsiadm -m iface -I stranger -o new
    iscsiadm -m iface -I stranger -o update -n iface.initiatorname -v iqn.2026-11.lunette:stranger
    iscsiadm -m node -T "$T" -p "$TUNNEL,2" -I stranger -o new
    secure "$TUNNEL"
    local code=0
    iscsiadm -m node -T "$T" -p "$TUNNEL,2" -I stranger --login || code=$?
    [ $code = 24 ]
    iscsiadm -m node -T "$T" -p "$TUNNEL,2" -I stranger -o delete
}

login_through_the_tunnel() {
    iscsiadm -m node -T "$T" -p "$TUNNEL" --login
    until_true 30 is_there "$TUNNEL" 1
    iscsiadm -m session -P 3 | grep -E "HeaderDigest: CRC32C"
    iscsiadm -m session -P 3 | grep -E "DataDigest: CRC32C"
}

ext4_through_the_tunnel() { P1=$TUNNEL ext4; }
the_server_restarts_behind_the_tunnel() { P1=$TUNNEL during restart; }

logout_through_the_tunnel() {
    iscsiadm -m node -T "$T" -p "$TUNNEL" --logout
    must_fail is_there "$TUNNEL" 0
}

for case in the_tunnel_starts discovery_names_the_tunnel a_name_that_the_certificate_lacks \
    login_through_the_tunnel ext4_through_the_tunnel the_server_restarts_behind_the_tunnel logout_through_the_tunnel; do
    run $case
done
finish
