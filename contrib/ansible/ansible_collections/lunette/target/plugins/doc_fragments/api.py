# Copyright: The Lunette contributors
# SPDX-License-Identifier: MIT OR Apache-2.0

"""Documentation that modules have in common."""

from __future__ import annotations


class ModuleDocFragment:
    """The options that lead to a server, and those of objects of its configuration."""

    DOCUMENTATION = r"""
options:
  url:
    description:
      - The API of the server, as C(unix:PATH) or C(https://HOST:PORT).
    type: str
    default: unix:/run/lunette/api.sock
  token:
    description:
      - A token of the API. Over C(https) there is either this or O(token_file).
    type: str
  token_file:
    description:
      - A file whose first line begins with a token, on the machine that the module runs on.
    type: path
  ca_path:
    description:
      - The certificate of the server, or of its authority, in PEM, on the machine that the module runs on.
    type: path
  timeout:
    description:
      - Seconds that the server has for an answer.
    type: int
    default: 60
attributes:
  check_mode:
    description: Can run in check mode and say what would change.
    support: full
  diff_mode:
    description: Says what has changed, or would change, in diff mode.
    support: full
"""

    OBJECT = r"""
options:
  settings:
    description:
      - Other keys, with the names and values that they have in the configuration file of the server.
    type: dict
    default: {}
  unset:
    description:
      - Keys that are taken out, by their names in the configuration file.
    type: list
    elements: str
    default: []
  force:
    description:
      - Takes away what sessions use, too. Without it the server refuses such a change, and names the sessions.
    type: bool
    default: false
"""

    JOB = r"""
options:
  job_timeout:
    description:
      - Seconds that a job of the server may take. The job goes on after that, and the module fails.
    type: int
    default: 600
"""
