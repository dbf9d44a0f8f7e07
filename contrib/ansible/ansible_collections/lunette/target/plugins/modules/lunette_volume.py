#!/usr/bin/python

# Copyright: The Lunette contributors
# SPDX-License-Identifier: MIT OR Apache-2.0

"""Volumes of a Lunette server."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lunette_volume
short_description: Volumes in the pools of a Lunette iSCSI server
version_added: "0.1.0"
description:
  - Creates, clones, grows, labels and removes volumes of a Lunette server, over its HTTP API.
  - M(lunette.target.lunette_lun) serves a volume to initiators.
author:
  - Lunette (@lunette)
extends_documentation_fragment:
  - lunette.target.api
  - lunette.target.api.job
options:
  pool:
    description: The pool.
    type: str
    required: true
  name:
    description: The name of the volume.
    type: str
    required: true
  state:
    description: Whether there is such a volume.
    type: str
    choices: [present, absent]
    default: present
  size:
    description:
      - The length in bytes, or with K, M, G, T or P for powers of 1024.
      - A new volume needs it, unless it is a clone or has a source. A volume with another length gets this one.
    type: str
  clone_of:
    description: The volume or snapshot of the same pool that a new volume is a clone of, as C(golden@v3).
    type: str
  source:
    description: The disk of another server that a new volume takes over, as a URL or path.
    type: str
  full:
    description: Gives a new volume all of its space at once.
    type: bool
    default: false
  serial:
    description: The serial number of a new volume. A volume keeps the one that it has.
    type: str
  labels:
    description: The labels, all but those that begin with C(lunette.). Without it, labels stay as they are.
    type: dict
  flatten:
    description: Gives a clone blocks of its own, so that its origin may go.
    type: bool
    default: false
  shrink:
    description: Lets the volume become shorter, and lose what is beyond.
    type: bool
    default: false
  remove_snapshots:
    description: Removes the snapshots of a volume that is to be absent. Without it, a volume with snapshots stays, and the module fails.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: A volume
  lunette.target.lunette_volume:
    pool: tank
    name: db
    size: 100G
    labels:
      owner: databases

- name: A clone of a golden image, longer than that
  lunette.target.lunette_volume:
    pool: tank
    name: web-1
    clone_of: golden@v1
    size: 40G

- name: No such volume, nor snapshots of it
  lunette.target.lunette_volume:
    pool: tank
    name: old
    state: absent
    remove_snapshots: true
"""

RETURN = r"""
volume:
  description: The volume, as the server describes it. Null when there is none, and in check mode when it would be new.
  type: dict
  returned: success
  sample: {pool: tank, name: db, size_bytes: 107374182400, serial: b8a6ff167bff1754, labels: {}, luns: []}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.lunette.target.plugins.module_utils.api import ARGUMENTS, EXCLUSIVE, Refused, part, refuse, run

UNITS = "KMGTP"

# The labels that the server and administrators keep.
RESERVED = "lunette."


def bytes_of(size):
    """The bytes of a size such as 100G."""
    text = size.strip().upper()
    power = UNITS.find(text[-1:]) + 1 if text else 0
    digits = text[:-1] if power else text
    if not digits.isdigit():
        raise Refused(0, "size", f"{size!r} is no number of bytes, such as 100G")
    return int(digits) << 10 * power


class Settling:
    """A volume on its way to what is wanted."""

    def __init__(self, api, module):
        self.api, self.module, self.wanted = api, module, module.params
        self.path = f"/v1/volumes/{part(self.wanted['pool'])}/{part(self.wanted['name'])}"
        self.before = api.find(self.path)[0]
        self.size = bytes_of(self.wanted["size"]) if self.wanted["size"] is not None else None

    def run(self):
        """Makes the volume what is wanted, and tells what has changed."""
        if self.wanted["state"] == "absent":
            after = self.remove()
        elif self.before is None:
            after = self.create()
        else:
            after = self.change()
        diff = {"before": shown(self.before), "after": shown(after)}
        is_new = after is not None and "serial" not in after
        return {"changed": diff["before"] != diff["after"], "volume": None if is_new else after, "diff": diff}

    def does(self, method, path, body=None):
        """Sends a change, except in check mode."""
        return None if self.module.check_mode else self.api.patiently(method, path, body)

    def remove(self):
        """Removes the volume. Without a pool it is not there either."""
        if self.before is None:
            return None
        if self.before["luns"]:
            luns = ", ".join(self.before["luns"])
            refuse(self.module, Refused(409, "in use", f"the volume is served by {luns}; remove these first"))
        snapshots = self.api.request("GET", f"{self.path}/snapshots")[0]
        if snapshots and not self.wanted["remove_snapshots"]:
            names = ", ".join(snapshot["name"] for snapshot in snapshots)
            why = f"the volume has the snapshots {names}; remove them, or set remove_snapshots"
            refuse(self.module, Refused(409, "in use", why))
        for snapshot in snapshots:
            self.does("DELETE", f"{self.path}/snapshots/{part(snapshot['name'])}")
        self.does("DELETE", self.path)
        return None

    def create(self):
        """Creates the volume. In check mode the server is asked for its pool alone."""
        self.api.request("GET", f"/v1/volumes?pool={part(self.wanted['pool'])}")
        new = {key: self.wanted[key] for key in ("clone_of", "source", "serial") if self.wanted[key] is not None}
        new.update({"full": self.wanted["full"], "labels": self.labels({})})
        if self.size is not None:
            new["size_bytes"] = self.size
        elif not ("clone_of" in new or "source" in new):
            raise Refused(0, "size", "a new volume needs a size, clone_of or source")
        created = self.does("POST", self.path, new)
        if created is None:
            return {"size_bytes": self.size, "labels": new["labels"], "origin": self.wanted["clone_of"]}
        return self.flat(created)

    def change(self):
        """Changes what is not as it is wanted."""
        after = dict(self.before)
        if self.wanted["serial"] not in (None, after["serial"]):
            raise Refused(0, "serial", f"the volume keeps its serial number {after['serial']} for life")
        change = {}
        if self.size not in (None, after["size_bytes"]):
            if self.size < after["size_bytes"] and not self.wanted["shrink"]:
                raise Refused(0, "size", f"the volume has {after['size_bytes']} bytes, and would lose some: set shrink")
            change.update({"size_bytes": self.size, "force": self.wanted["shrink"]})
            after["size_bytes"] = self.size
        labels = self.labels(after["labels"])
        if labels != after["labels"]:
            change["labels"] = after["labels"] = labels
        if change:
            after = self.does("PATCH", self.path, change) or after
        return self.flat(after)

    def labels(self, now):
        """The labels that the volume is to have."""
        if self.wanted["labels"] is None:
            return now
        kept = {key: value for key, value in now.items() if key.startswith(RESERVED)}
        return {**kept, **{key: str(value) for key, value in self.wanted["labels"].items()}}

    def flat(self, volume):
        """Gives a clone its own blocks, if that is wanted."""
        if not self.wanted["flatten"] or volume.get("origin") is None:
            return volume
        job = self.does("POST", f"{self.path}/actions/flatten")
        if job is None:
            return {**volume, "origin": None}
        self.api.await_job(job, self.wanted["job_timeout"])
        return self.api.request("GET", self.path)[0]


def shown(volume):
    """What of a volume a module changes."""
    if volume is None:
        return {}
    return {key: volume.get(key) for key in ("size_bytes", "labels", "origin")}


def main():
    """The module."""
    arguments = {
        "pool": {"type": "str", "required": True},
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "size": {"type": "str"},
        "clone_of": {"type": "str"},
        "source": {"type": "str"},
        "full": {"type": "bool", "default": False},
        "serial": {"type": "str"},
        "labels": {"type": "dict"},
        "flatten": {"type": "bool", "default": False},
        "shrink": {"type": "bool", "default": False},
        "remove_snapshots": {"type": "bool", "default": False},
        "job_timeout": {"type": "int", "default": 600},
    }
    module = AnsibleModule(
        argument_spec={**ARGUMENTS, **arguments},
        mutually_exclusive=[*EXCLUSIVE, ["clone_of", "source"]],
        supports_check_mode=True,
    )
    run(module, lambda api: Settling(api, module).run())


if __name__ == "__main__":
    main()
