# The cases of the driver for Kubernetes; start.sh stands above. The third disk is a tar of its programs and files, API
# is the address of the server, and SECRET_FILE and OTHER_SECRET_FILE are files of that machine.

mkdir -p /csi
tar -x -C /csi -f /dev/vdc
printf 'defaults {\n find_multipaths no\n user_friendly_names yes\n polling_interval 1\n no_path_retry queue\n}\n' >/etc/multipath.conf
modprobe -a dm-multipath dm-round-robin dm-service-time
multipathd

api=(--api="https://$API" --token-file=/csi/token --ca=/csi/certificate.pem --portals="$P1,$P2")
/csi/lunette-node check "${api[@]}" --secret "$SECRET" "$SECRET_FILE" --mutual-secret "$OTHER_SECRET" "$OTHER_SECRET_FILE" ||
    echo "== failed lunette_node"

csi_sanity() { # what is there for nodes, against the program that ships
    /csi/lunette-csi --endpoint=unix:///csi/csi.sock "${api[@]}" &
    until_true 60 [ -S /csi/csi.sock ]
    /csi/csi-sanity --csi.endpoint=/csi/csi.sock --csi.mountdir=/csi/mount --csi.stagingdir=/csi/stage \
        --csi.testvolumesize=$((32 << 20)) --csi.testvolumeexpandsize=$((64 << 20)) \
        --ginkgo.focus="Node Service" --ginkgo.no-color | tee /csi/sanity.log
    grep -q -E -e "-- [1-9][0-9]+ Passed" /csi/sanity.log
}

run csi_sanity
finish
