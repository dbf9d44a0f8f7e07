#!/usr/bin/python

# Copyright: The Lunette contributors
# SPDX-License-Identifier: MIT OR Apache-2.0

"""Targets of a Lunette server."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lunette_target
short_description: Targets of a Lunette iSCSI server
version_added: "0.1.0"
description:
  - Adds, changes and removes targets of a Lunette server, over its HTTP API.
  - What is not given stays as it is, and so do the LUNs and hosts of the target.
  - A new target lets in no initiator until O(allow) or a host names one.
author:
  - Lunette (@lunette)
extends_documentation_fragment:
  - lunette.target.api
  - lunette.target.api.object
options:
  name:
    description: The iSCSI name of the target, in lower case.
    type: str
    required: true
  state:
    description: Whether there is such a target.
    type: str
    choices: [present, absent]
    default: present
  alias:
    description: A name for people.
    type: str
  allow:
    description: The initiators that may use the target. V([*]) is all. Beside hosts it is left out, or empty.
    type: list
    elements: str
  chap:
    description: The users that may log in.
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
    description: The algorithms of CHAP that are allowed. Without it, all.
    type: list
    elements: str
    choices: [sha3-256, sha256, sha1, md5]
  max_connections:
    description: The connections that a session may have.
    type: int
"""

EXAMPLES = r"""
- name: A target for one initiator
  lunette.target.lunette_target:
    name: iqn.2026-11.org.example:db
    alias: database disks
    allow:
      - iqn.2026-11.org.example:db-host

- name: The same from another machine, with a key that has no option of its own
  lunette.target.lunette_target:
    url: https://192.0.2.1:8443
    token_file: /root/lunette-token
    ca_path: /etc/lunette/api-cert.pem
    name: iqn.2026-11.org.example:db
    settings:
      session:
        error_recovery_level: 2

- name: No such target
  lunette.target.lunette_target:
    name: iqn.2026-11.org.example:old
    state: absent
"""

RETURN = r"""
target:
  description: The target, with the keys of the configuration file. Null when there is none.
  type: dict
  returned: success
  sample: {name: "iqn.2026-11.org.example:db", allow: ["iqn.2026-11.org.example:db-host"]}
plan:
  description: What changes, and which sessions notice it, in the words of the server.
  type: list
  elements: dict
  returned: success
"""

from ansible_collections.lunette.target.plugins.module_utils.api import part
from ansible_collections.lunette.target.plugins.module_utils.objects import USER, main

ARGUMENTS = {
    "name": {"type": "str", "required": True},
    "alias": {"type": "str"},
    "allow": {"type": "list", "elements": "str"},
    "chap": {"type": "list", "elements": "dict", "options": USER},
    "mutual_chap": {"type": "dict", "options": USER},
    "chap_algorithms": {"type": "list", "elements": "str", "choices": ["sha3-256", "sha256", "sha1", "md5"]},
    "max_connections": {"type": "int"},
}


def path_of(params):
    """The path of the target."""
    return f"/v1/targets/{part(params['name'])}"


if __name__ == "__main__":
    main("target", ARGUMENTS, {key: key for key in ARGUMENTS}, path_of)
