#!/usr/bin/python

# Copyright: The Lunette contributors
# SPDX-License-Identifier: MIT OR Apache-2.0

"""LUNs of targets of a Lunette server."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lunette_lun
short_description: LUNs of a target of a Lunette iSCSI server
version_added: "0.1.0"
description:
  - Adds, changes and removes LUNs of a target of a Lunette server, over its HTTP API.
  - What is not given stays as it is.
author:
  - Lunette (@lunette)
extends_documentation_fragment:
  - lunette.target.api
  - lunette.target.api.object
options:
  target:
    description: The iSCSI name of the target.
    type: str
    required: true
  number:
    description: The LUN, from 0 to 16383.
    type: int
    required: true
  state:
    description: Whether there is such a LUN.
    type: str
    choices: [present, absent]
    default: present
  disk:
    description:
      - The disk, as the configuration file names it. C(volume:POOL/VOLUME) is a volume, and a path is a file or block device.
      - A new LUN needs it.
    type: str
  create:
    description: Creates the file of the disk with this size when it is missing.
    type: str
  block_size:
    description: Bytes of a logical block.
    type: int
    choices: [512, 4096]
  read_only:
    description: Refuses writes.
    type: bool
  serial:
    description: The serial number by which initiators know the disk. A volume has one of its own.
    type: str
"""

EXAMPLES = r"""
- name: A volume as LUN 0
  lunette.target.lunette_lun:
    target: iqn.2026-11.org.example:db
    number: 0
    disk: volume:tank/db

- name: A file that is created when it is missing
  lunette.target.lunette_lun:
    target: iqn.2026-11.org.example:db
    number: 1
    disk: /srv/log.img
    create: 10G
    settings:
      product: LOG

- name: No LUN 2, though sessions may use it
  lunette.target.lunette_lun:
    target: iqn.2026-11.org.example:db
    number: 2
    state: absent
    force: true
"""

RETURN = r"""
lun:
  description: The LUN, with the keys of the configuration file. Null when there is none.
  type: dict
  returned: success
  sample: {number: 0, disk: "volume:tank/db"}
plan:
  description: What changes, and which sessions notice it, in the words of the server.
  type: list
  elements: dict
  returned: success
"""

from ansible_collections.lunette.target.plugins.module_utils.api import part
from ansible_collections.lunette.target.plugins.module_utils.objects import main

ARGUMENTS = {
    "target": {"type": "str", "required": True},
    "number": {"type": "int", "required": True},
    "disk": {"type": "str"},
    "create": {"type": "str"},
    "block_size": {"type": "int", "choices": [512, 4096]},
    "read_only": {"type": "bool"},
    "serial": {"type": "str"},
}


def path_of(params):
    """The path of the LUN."""
    return f"/v1/targets/{part(params['target'])}/luns/{params['number']}"


if __name__ == "__main__":
    main("lun", ARGUMENTS, {key: key for key in ARGUMENTS if key != "target"}, path_of)
