"""Prints what LIO would serve with a saveconfig.json, one fact in a line: rtslib restores the file, into a folder that stands for configfs.

The folder does what the kernel does when rtslib makes a directory there: it has the attributes of that object, with their defaults. What the kernel
makes of them (iscsi_target_nego.c, target_core_tpg.c) is said at the end. Usage: rtslib_facts.py SAVECONFIG.JSON
"""

import atexit
import inspect
import os
import re
import shutil
import sys
import tempfile

from rtslib_fb import fabric, node, root, tcm, utils

ROOT = tempfile.mkdtemp()
atexit.register(shutil.rmtree, ROOT)
CONFIGFS = ROOT + "/target"

TPG = {
    "authentication": 1, "generate_node_acls": 0, "cache_dynamic_acls": 0, "default_cmdsn_depth": 64, "default_erl": 0,
    "demo_mode_discovery": 1, "demo_mode_write_protect": 1, "fabric_prot_type": 0, "login_keys_workaround": 1,
    "login_timeout": 15, "prod_mode_write_protect": 0, "t10_pi": 0, "tpg_enabled_sendtargets": 1,
}
PARAMETERS = [
    "AuthMethod", "DataDigest", "DataPDUInOrder", "DataSequenceInOrder", "DefaultTime2Retain", "DefaultTime2Wait",
    "ErrorRecoveryLevel", "FirstBurstLength", "HeaderDigest", "IFMarker", "IFMarkInt", "ImmediateData", "InitialR2T",
    "MaxBurstLength", "MaxConnections", "MaxOutstandingR2T", "MaxRecvDataSegmentLength", "MaxXmitDataSegmentLength",
    "OFMarker", "OFMarkInt", "TargetAlias",
]
AUTH = {"auth/" + name: "" for name in ("userid", "password", "userid_mutual", "password_mutual")}
ACL = ["authentication", "dataout_timeout", "dataout_timeout_retries", "default_erl", "nopin_response_timeout", "nopin_timeout",
       "random_datain_pdu_offsets", "random_datain_seq_offsets", "random_r2t_offsets"]

# The directories of configfs that have attributes, and these.
OBJECTS = [
    (r"/tpgt_\d+$", {"enable": 0, "nexus": "", **AUTH, **{"attrib/" + name: value for name, value in TPG.items()},
                     **{"param/" + name: "" for name in PARAMETERS}, "lun/": "", "np/": "", "acls/": ""}),
    (r"/acls/[^/]+$", {"cmdsn_depth": 64, "tag": "", **AUTH, **{"attrib/" + name: -1 for name in ACL}}),
    (r"/acls/[^/]+/lun_\d+$", {"write_protect": 0}),
    (r"/np/[^/]+$", {"iser": 0, "cxgbit": 0}),
    (r"/lun/lun_\d+$", {"alua_tg_pt_gp": ""}),
    (r"/iscsi$", {"discovery_auth/enforce_discovery_auth": 0, **{"discovery_" + name: value for name, value in AUTH.items()}}),
]

mkdir = os.mkdir


def make(path, *arguments):
    mkdir(path, *arguments)
    for pattern, attributes in OBJECTS:
        if str(path).startswith(CONFIGFS) and re.search(pattern, path):
            for name, value in attributes.items():
                os.makedirs(os.path.dirname(f"{path}/{name}"), exist_ok=True)
                if not name.endswith("/"):
                    utils.fwrite(f"{path}/{name}", value)


class Disk(tcm.StorageObject):
    """A backstore, of which configfs has the folder. Its arguments are those that rtslib takes for it."""

    saved = {}

    def __init__(self, name, index=None, **arguments):
        node.CFSNode.__init__(self)
        if index is None:
            inspect.signature(self.real.__init__).bind(self, name, **arguments)
            # Without its place rtslib looks for a backstore that is there already.
            if not any(arguments.get(place) for place in ("dev", "size", "config")):
                raise utils.RTSLibNotInCFS(name)
            self.saved[(self.plugin, name)] = arguments
        self._name, self._path = name, f"{CONFIGFS}/core/{self.plugin}_0/{name}"
        os.makedirs(self._path + "/alua", exist_ok=True)

    def set_attribute(self, attribute, value):
        self.saved[(self.plugin, self.name)][attribute] = value


def stand_in():
    os.mkdir = make
    node.CFSNode.configfs_dir = CONFIGFS
    for module in (root, utils):
        module.mount_configfs = module.modprobe = lambda *_: None
    for plugin, real in list(tcm.so_mapping.items()):
        tcm.so_mapping[plugin] = type(plugin, (Disk,), {"plugin": plugin, "real": real})
    fabric.FabricModule.all = classmethod(lambda cls: [cls("iscsi")])
    make(CONFIGFS)
    make(CONFIGFS + "/iscsi")


def number(tpg, name):
    return int(tpg.get_attribute(name))


def credentials(owner, of, name):
    for direction, user, secret in (("chap", of.chap_userid, of.chap_password),
                                    ("mutual_chap", of.chap_mutual_userid, of.chap_mutual_password)):
        if user and secret:
            print(owner, direction, user, secret)
    return bool(of.chap_userid and of.chap_password)


def place_of(plugin, saved):
    """Where a disk is, as ours says it; None for what is no disk of ours."""
    if plugin in ("block", "fileio"):
        return saved["dev"]
    if plugin == "ramdisk" and not saved.get("nullio"):
        return f"mem:{saved['size']}"
    if plugin == "user" and saved["config"].startswith("rbd/"):
        return "rbd:" + saved["config"][4:]
    return None


def facts_of(target):
    # A target of ours has the LUNs and hosts of one portal group.
    tpgs = sorted((tpg for tpg in target.tpgs if tpg.enable), key=lambda tpg: tpg.tag)
    for tpg in tpgs[:1]:
        print(target.wwn)
        for portal in tpg.network_portals:
            print("portal", portal.ip_address, portal.port)
        disks = {}
        for lun in tpg.luns:
            saved = Disk.saved[(lun.storage_object.plugin, lun.storage_object.name)]
            disk = place_of(lun.storage_object.plugin, saved)
            if disk is None:
                continue
            disks[lun.lun] = saved
            print(target.wwn, "lun", lun.lun, disk)
            if int(saved.get("block_size", 512)) != 512:
                print(target.wwn, "lun", lun.lun, "block_size", saved["block_size"])
            if saved.get("readonly"):
                print(target.wwn, "lun", lun.lun, "read_only 1")
            if saved.get("wwn"):
                print(target.wwn, "lun", lun.lun, "serial", saved["wwn"])
        for acl in tpg.node_acls:
            owner = f"{target.wwn} {acl.node_wwn}"
            proof = int(acl.get_attribute("authentication"))
            if (number(tpg, "authentication") if proof < 0 else proof) and not credentials(owner, acl, "host"):
                print(owner, "is kept out")
                continue
            print(owner, "is let in")
            for mapped in acl.mapped_luns:
                if mapped.tpg_lun.lun in disks:
                    protected = mapped.write_protect or number(tpg, "prod_mode_write_protect")
                    print(owner, mapped.mapped_lun, "is", mapped.tpg_lun.lun, "read only" if protected else "")
        if number(tpg, "generate_node_acls"):
            owner = f"{target.wwn} others"
            if number(tpg, "authentication") and not credentials(owner, tpg, "all"):
                print(owner, "is kept out")
            else:
                print(owner, "is let in", "read only" if number(tpg, "demo_mode_write_protect") else "")
        else:
            print(f"{target.wwn} others is kept out")


stand_in()
lio = root.RTSRoot()
for error in lio.restore_from_file(sys.argv[1], clear_existing=False):
    print(error, file=sys.stderr)
for target in lio.targets:
    facts_of(target)
