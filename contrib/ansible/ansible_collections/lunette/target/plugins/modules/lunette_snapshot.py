#!/usr/bin/python

# Copyright: The Lunette contributors
# SPDX-License-Identifier: MIT OR Apache-2.0

"""Snapshots of volumes of a Lunette server."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lunette_snapshot
short_description: Snapshots of volumes of a Lunette iSCSI server
version_added: "0.1.0"
description:
  - Takes snapshots of volumes of a Lunette server at one instant, removes them, and rolls volumes back, over its HTTP API.
author:
  - Lunette (@lunette)
extends_documentation_fragment:
  - lunette.target.api
  - lunette.target.api.job
options:
  name:
    description: The name of the snapshot.
    type: str
    required: true
  volumes:
    description: The volumes, as C(POOL/VOLUME).
    type: list
    elements: str
    required: true
  state:
    description:
      - V(present) takes the snapshot of all volumes at one instant. Where some have it and others do not, the module fails.
      - V(absent) removes it from all volumes.
      - V(rolled_back) gives each volume the content of its snapshot, each time that it is asked for. What a volume had before
        becomes a snapshot C(before-rollback-TIME).
    type: str
    choices: [present, absent, rolled_back]
    default: present
  labels:
    description: Labels of a new snapshot.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: A snapshot of two volumes at one instant
  lunette.target.lunette_snapshot:
    name: before-upgrade
    volumes:
      - tank/db
      - tank/log

- name: Back to it
  lunette.target.lunette_snapshot:
    name: before-upgrade
    volumes:
      - tank/db
      - tank/log
    state: rolled_back
"""

RETURN = r"""
snapshots:
  description: The snapshots, as the server describes them, in the order of the volumes.
  type: list
  elements: dict
  returned: success
  sample: [{pool: tank, volume: db, name: before-upgrade, size_bytes: 107374182400}]
before:
  description: The snapshots that have what the volumes had before they were rolled back, in the order of the volumes.
  type: list
  elements: str
  returned: when volumes were rolled back
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.lunette.target.plugins.module_utils.api import ARGUMENTS, EXCLUSIVE, Refused, part, refuse, run


def path_of(volume):
    """The path of a volume, from POOL/VOLUME."""
    pool, slash, name = volume.partition("/")
    if not (slash and pool and name):
        raise Refused(0, "volumes", f"{volume!r} is not POOL/VOLUME")
    return f"/v1/volumes/{part(pool)}/{part(name)}"


class Settling:
    """Snapshots on their way to what is wanted."""

    def __init__(self, api, module):
        self.api, self.module = api, module
        self.name, self.volumes = module.params["name"], module.params["volumes"]
        self.paths = {volume: path_of(volume) for volume in self.volumes}
        self.before = {volume: self.find(volume) for volume in self.volumes}

    def find(self, volume):
        """The snapshot of a volume; None when it has none of the name, or is not there."""
        all_of_it = self.api.find(f"{self.paths[volume]}/snapshots")[0]
        if all_of_it is None and self.module.params["state"] != "absent":
            refuse(self.module, Refused(404, "not found", f"there is no volume {volume}"))
        return next((one for one in all_of_it or [] if one["name"] == self.name), None)

    def lacking(self):
        """The volumes without the snapshot."""
        return [volume for volume in self.volumes if self.before[volume] is None]

    def run(self):
        """Makes the snapshots what is wanted, and tells what has changed."""
        return {"present": self.take, "absent": self.remove, "rolled_back": self.roll_back}[self.module.params["state"]]()

    def take(self):
        """Takes the snapshot of all volumes, or has it already."""
        lacking = self.lacking()
        if not lacking:
            return self.told(False, list(self.before.values()), self.volumes)
        if len(lacking) < len(self.volumes):
            raise Refused(0, self.name, f"{', '.join(lacking)} lack it, and the others have it from an earlier instant")
        order = {"volumes": self.volumes, "name": self.name, "labels": self.module.params["labels"]}
        order["labels"] = {key: str(value) for key, value in order["labels"].items()}
        taken = []
        if not self.module.check_mode:
            taken = self.api.patiently("POST", "/v1/snapshots", order)["snapshots"]
        return self.told(True, taken, self.volumes)

    def remove(self):
        """Removes the snapshot from the volumes that have it."""
        having = [volume for volume in self.volumes if self.before[volume] is not None]
        used = [lun for volume in having for lun in self.before[volume]["luns"]]
        if used:
            why = f"the snapshot is served by {', '.join(used)}; remove these first"
            refuse(self.module, Refused(409, "in use", why))
        if not self.module.check_mode:
            for volume in having:
                self.api.patiently("DELETE", f"{self.paths[volume]}/snapshots/{part(self.name)}")
        return self.told(bool(having), [], [])

    def roll_back(self):
        """Gives each volume the content of its snapshot."""
        lacking = self.lacking()
        if lacking:
            refuse(self.module, Refused(404, "not found", f"{', '.join(lacking)} have no snapshot {self.name}"))
        before = []
        if not self.module.check_mode:
            for volume in self.volumes:
                action = f"{self.paths[volume]}/snapshots/{part(self.name)}/actions/rollback"
                job = self.api.patiently("POST", action)
                job = self.api.await_job(job, self.module.params["job_timeout"])
                before.append(job["result"]["before"])
        result = self.told(True, [one for one in self.before.values() if one], self.volumes)
        result["diff"] = {"before": "", "after": "".join(f"{volume}: the content of {self.name}\n" for volume in self.volumes)}
        return {**result, "before": before}

    def told(self, changed, snapshots, having):
        """The result of the module."""
        had = [volume for volume in self.volumes if self.before[volume] is not None]
        diff = {"before": {"volumes": had}, "after": {"volumes": having}}
        return {"changed": changed, "snapshots": snapshots, "diff": diff}


def main():
    """The module."""
    arguments = {
        "name": {"type": "str", "required": True},
        "volumes": {"type": "list", "elements": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent", "rolled_back"], "default": "present"},
        "labels": {"type": "dict", "default": {}},
        "job_timeout": {"type": "int", "default": 600},
    }
    module = AnsibleModule(
        argument_spec={**ARGUMENTS, **arguments}, mutually_exclusive=EXCLUSIVE, supports_check_mode=True
    )
    run(module, lambda api: Settling(api, module).run())


if __name__ == "__main__":
    main()
