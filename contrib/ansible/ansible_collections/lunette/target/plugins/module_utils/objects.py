# Copyright: The Lunette contributors
# SPDX-License-Identifier: MIT OR Apache-2.0

"""Objects of the configuration of a server, and parts of targets: they are all read, put and deleted alike."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.lunette.target.plugins.module_utils.api import ARGUMENTS, EXCLUSIVE, Refused, refuse, run

OBJECT_ARGUMENTS = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "settings": {"type": "dict", "default": {}},
    "unset": {"type": "list", "elements": "str", "default": []},
    "force": {"type": "bool", "default": False},
}

USER = {
    "user": {"type": "str", "required": True},
    "secret_file": {"type": "str", "required": True},
}

# Keys whose names in the configuration file are words of Python, by those of the options.
RENAMED = {"seen_as": "as"}


def main(kind, arguments, keys, path_of, **rules):
    """A module for one kind of object. `keys` has the key of the object for each argument that is one."""
    module = AnsibleModule(
        argument_spec={**ARGUMENTS, **OBJECT_ARGUMENTS, **arguments},
        mutually_exclusive=EXCLUSIVE,
        supports_check_mode=True,
        **rules,
    )
    given = {key: as_written(module.params[name]) for name, key in keys.items() if module.params[name] is not None}
    clash = sorted(set(given) & set(module.params["settings"]))
    if clash:
        module.fail_json(msg=f"settings has {', '.join(clash)}, and so have the arguments: give each once")
    given.update(module.params["settings"])
    run(module, lambda api: settle(api, module, kind, path_of(module.params), given))


def as_written(value):
    """The value of an argument as the configuration file has it: without options that are not given."""
    if isinstance(value, dict):
        return {RENAMED.get(key, key): as_written(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [as_written(inner) for inner in value]
    return value


def settle(api, module, kind, path, given):
    """Makes an object what is wanted, if it is not yet."""
    before, etag = api.find(path)
    if module.params["state"] == "absent":
        wanted, method = None, "DELETE"
    else:
        unset = set(module.params["unset"])
        wanted = {key: value for key, value in {**(before or {}), **given}.items() if key not in unset}
        method = "PUT"
    diff = {"before": before or {}, "after": wanted or {}}
    if before == wanted:
        return {"changed": False, kind: before, "diff": diff, "plan": []}
    headers = {"If-Match": etag} if etag else {"If-None-Match": "*"}
    if module.check_mode:
        plan, after = foresee(api, module, (method, f"{path}?dry_run=true", wanted, headers)), wanted
    else:
        plan = api.request(method, f"{path}?dry_run=true", wanted, headers)[0]
        after = api.request(method, path + ("?force=true" if module.params["force"] else ""), wanted, headers)[0]
    diff["after"] = after or {}
    return {"changed": True, kind: after, "diff": diff, "plan": plan["changes"]}


def foresee(api, module, request):
    """Refuses in check mode what the server would refuse, but for what an earlier task may have changed by then."""
    try:
        plan = api.request(*request)[0]
    except Refused as refused:
        # An object that goes has no mistake itself: the rest of its target still needs it.
        is_of_others = refused.status == 404 or (refused.status == 422 and request[0] == "DELETE")
        if not is_of_others:
            raise
        refuse(module, refused)
        return {"changes": []}
    for change in plan["changes"]:
        if change.get("obstacle"):
            module.warn(f"{change['change']}: {change['obstacle']}")
    if plan["needs_force"] and not module.params["force"]:
        lost = [change["change"] for change in plan["changes"] if change["takes_away"] and change["sessions"]]
        raise Refused(409, "in use", f"{'; '.join(lost)}: end the sessions first, or force the change")
    return plan
