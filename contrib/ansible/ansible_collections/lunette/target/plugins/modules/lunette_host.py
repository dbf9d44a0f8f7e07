#!/usr/bin/python

# Copyright: The Lunette contributors
# SPDX-License-Identifier: MIT OR Apache-2.0

"""Hosts of targets of a Lunette server."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lunette_host
short_description: Hosts of a target of a Lunette iSCSI server
version_added: "0.1.0"
description:
  - Adds, changes and removes hosts of a target of a Lunette server, over its HTTP API. A host is initiators with the same rules.
  - What is not given stays as it is. A new host comes behind all others, and an initiator belongs to the first that fits.
  - A new host without O(initiators), O(networks) and O(chap) is for no initiator.
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
  name:
    description: The name of the host.
    type: str
    required: true
  state:
    description: Whether there is such a host.
    type: str
    choices: [present, absent]
    default: present
  initiators:
    description: The initiator names that belong to the host. V([*]) is all.
    type: list
    elements: str
  networks:
    description: Where the connections of the host come from, as C(ADDR/BITS) or C(ADDR).
    type: list
    elements: str
  chap:
    description: The users that may log in as this host.
    type: list
    elements: dict
    suboptions:
      user:
        description: The name of the user.
        type: str
        required: true
      secret_file:
        description: The file with the secret, on the machine of the server.
        type: str
        required: true
  mutual_chap:
    description: How the target proves its identity.
    type: dict
    suboptions:
      user:
        description: The name that the target gives.
        type: str
        required: true
      secret_file:
        description: The file with the secret, on the machine of the server.
        type: str
        required: true
  chap_algorithms:
    description: The algorithms of CHAP that are allowed. Without it, the target's.
    type: list
    elements: str
    choices: [sha3-256, sha256, sha1, md5]
  read_only:
    description: Refuses the host's writes to all LUNs.
    type: bool
  luns:
    description: The LUNs that the host sees. Without it, the host sees all under their own numbers.
    type: list
    elements: dict
    suboptions:
      number:
        description: The number in the target.
        type: int
        required: true
      seen_as:
        description: The number that the host sees.
        type: int
      read_only:
        description: Refuses the host's writes to this LUN.
        type: bool
"""

EXAMPLES = r"""
- name: A host that sees LUN 2 as its LUN 0
  lunette.target.lunette_host:
    target: iqn.2026-11.org.example:cluster
    name: node-a
    initiators:
      - iqn.2026-11.org.example:node-a
    chap:
      - user: node-a
        secret_file: /etc/lunette/secrets/node-a
    luns:
      - number: 2
        seen_as: 0

- name: No such host
  lunette.target.lunette_host:
    target: iqn.2026-11.org.example:cluster
    name: node-b
    state: absent
"""

RETURN = r"""
host:
  description: The host, with the keys of the configuration file. Null when there is none.
  type: dict
  returned: success
  sample: {name: node-a, initiators: ["iqn.2026-11.org.example:node-a"]}
plan:
  description: What changes, and which sessions notice it, in the words of the server.
  type: list
  elements: dict
  returned: success
"""

from ansible_collections.lunette.target.plugins.module_utils.api import part
from ansible_collections.lunette.target.plugins.module_utils.objects import USER, main

ARGUMENTS = {
    "target": {"type": "str", "required": True},
    "name": {"type": "str", "required": True},
    "initiators": {"type": "list", "elements": "str"},
    "networks": {"type": "list", "elements": "str"},
    "chap": {"type": "list", "elements": "dict", "options": USER},
    "mutual_chap": {"type": "dict", "options": USER},
    "chap_algorithms": {"type": "list", "elements": "str", "choices": ["sha3-256", "sha256", "sha1", "md5"]},
    "read_only": {"type": "bool"},
    "luns": {
        "type": "list",
        "elements": "dict",
        "options": {
            "number": {"type": "int", "required": True},
            "seen_as": {"type": "int"},
            "read_only": {"type": "bool"},
        },
    },
}

KEYS = {key: key for key in ARGUMENTS if key not in ("target", "luns")}


def path_of(params):
    """The path of the host."""
    return f"/v1/targets/{part(params['target'])}/hosts/{part(params['name'])}"


if __name__ == "__main__":
    main("host", ARGUMENTS, {**KEYS, "luns": "lun"}, path_of)
