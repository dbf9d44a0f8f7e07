"""The parts of Cinder and Oslo that its classes for targets import, without what they need.

Of Cinder, the modules below cinder.volume.targets and cinder.privsep.targets are real, with cinder.common.constants. What
they import from elsewhere stands here: the database, exceptions, names and passwords, the execution of a command, locks,
privileges, and the logs and options of Oslo. The first argument of the program is the folder with Cinder's package.
"""

import json
import os
import subprocess
import sys
import types

PACKAGE = sys.argv[1]


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, made)
    return made


class ProcessExecutionError(Exception):
    def __init__(self, text="", stderr=""):
        super().__init__(text)
        self.stderr = stderr


class NotFound(Exception):
    pass


class CinderException(Exception):
    def __init__(self, *arguments, **_):
        super().__init__(*arguments)


def execute(*command, run_as_root=False, **_):
    """Runs a command as oslo.concurrency does, with all arguments as text."""
    ran = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if ran.returncode != 0:
        raise ProcessExecutionError(f"{command}: {ran.returncode} {ran.stderr}", ran.stderr)
    return ran.stdout, ran.stderr


class Log:
    def __getattr__(self, _):
        return lambda *arguments, **named: print(*arguments, file=sys.stderr)


class Configuration:
    """The options of a backend that classes for targets read."""

    target_prefix = "iqn.2010-10.org.openstack:"
    target_protocol = "iscsi"
    target_ip_address = "127.0.0.1"
    iscsi_secondary_ip_addresses = []
    volumes_dir = "/nonexistent"

    def __init__(self, port, **options):
        self.target_port = int(port)
        self.__dict__.update(options)

    def safe_get(self, name):
        return getattr(self, name)

    def get(self, name, default):
        return getattr(self, name, default)


def volume_get(_context, _volume):
    raise NotFound()


def robust_file_write(folder, name, text):
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)


def undecorated(*_, **__):
    """A decorator that changes nothing: no locks, no repetitions, no other process."""
    return lambda function: function


for name in ["oslo_concurrency", "oslo_log", "oslo_config", "oslo_utils", "cinder", "cinder.volume", "cinder.common"]:
    module(name)
module("cinder.privsep", sys_admin_pctxt=types.SimpleNamespace(entrypoint=lambda function: function))
for name in ["cinder", "cinder.volume", "cinder.common", "cinder.privsep"]:
    sys.modules[name].__path__ = [f"{PACKAGE}/{name.replace('.', '/')}"]
module("oslo_concurrency.processutils", ProcessExecutionError=ProcessExecutionError, execute=execute)
module("oslo_utils.fileutils", ensure_tree=lambda path: os.makedirs(path, exist_ok=True), delete_if_exists=os.unlink)
module("oslo_log.log", getLogger=lambda _: Log())
module("oslo_config.cfg", CONF=types.SimpleNamespace(rootwrap_config="rootwrap.conf"))
module("cinder.db", volume_get=volume_get)
names = ["ISCSITargetCreateFailed", "ISCSITargetRemoveFailed", "ISCSITargetAttachFailed", "ISCSITargetDetachFailed",
         "InvalidParameterValue", "InvalidVolume", "InvalidConnectorException"]
module("cinder.exception", NotFound=NotFound, **{name: type(name, (CinderException,), {}) for name in names})
module("cinder.i18n", _=str)
module("cinder.utils", execute=execute, synchronized=undecorated, retry=undecorated, robust_file_write=robust_file_write)
module("cinder.volume.volume_utils", generate_username=lambda: "cinder-user", generate_password=lambda: "cinder-password",
       sanitize_host=str)


def answer(**content):
    """Tells what was done, and waits for the word to go on."""
    print(json.dumps(content), flush=True)
    sys.stdin.readline()
