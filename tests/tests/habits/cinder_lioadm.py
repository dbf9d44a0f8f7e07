"""Cinder's class LioAdm against cinder-rtstool.

Arguments: the folder with Cinder's package, the device of a volume, and the port of the portal. Of Cinder, the modules
below cinder.volume.targets are real, with cinder.common.constants. What they import from elsewhere stands below: the
database, exceptions, names and passwords, the execution of a command, locks, and the logs and options of Oslo.
"""

import json
import subprocess
import sys
import types

PACKAGE, DEVICE, PORT = sys.argv[1:]


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, made)
    return made


class ProcessExecutionError(Exception):
    pass


class NotFound(Exception):
    pass


class CinderException(Exception):
    def __init__(self, *arguments, **_):
        super().__init__(*arguments)


def execute(*command, run_as_root=False, **_):
    """Runs a command as oslo.concurrency does, with all arguments as text."""
    ran = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if ran.returncode != 0:
        raise ProcessExecutionError(f"{command}: {ran.returncode} {ran.stderr}")
    return ran.stdout, ran.stderr


class Log:
    def __getattr__(self, _):
        return lambda *arguments, **named: print(*arguments, file=sys.stderr)


class Configuration:
    """The options of a backend that LioAdm reads."""

    target_prefix = "iqn.2010-10.org.openstack:"
    target_protocol = "iscsi"
    target_ip_address = "127.0.0.1"
    target_port = int(PORT)
    iscsi_secondary_ip_addresses = []
    volumes_dir = "/nonexistent"

    def safe_get(self, name):
        return getattr(self, name)


def volume_get(_context, _volume):
    raise NotFound()


for name in ["oslo_concurrency", "oslo_log", "oslo_config", "cinder", "cinder.volume", "cinder.common"]:
    module(name)
for name in ["cinder", "cinder.volume", "cinder.common"]:
    sys.modules[name].__path__ = [f"{PACKAGE}/{name.replace('.', '/')}"]
module("oslo_concurrency.processutils", ProcessExecutionError=ProcessExecutionError)
module("oslo_log.log", getLogger=lambda _: Log())
module("oslo_config.cfg", CONF=types.SimpleNamespace(rootwrap_config="rootwrap.conf"))
module("cinder.db", volume_get=volume_get)
names = ["ISCSITargetCreateFailed", "ISCSITargetRemoveFailed", "ISCSITargetAttachFailed", "ISCSITargetDetachFailed",
         "InvalidParameterValue", "InvalidVolume", "InvalidConnectorException"]
module("cinder.exception", NotFound=NotFound, **{name: type(name, (CinderException,), {}) for name in names})
module("cinder.i18n", _=str)
module("cinder.utils", execute=execute, synchronized=lambda *_, **__: lambda function: function)
module("cinder.volume.volume_utils", generate_username=lambda: "cinder-user", generate_password=lambda: "cinder-password",
       sanitize_host=str)

from cinder.volume.targets.lio import LioAdm  # noqa: E402

driver = LioAdm(configuration=Configuration())
volume = {"id": "7f3a", "name": "volume-7f3a", "provider_location": None, "provider_auth": None}


def answer(**content):
    """Tells what was done, and waits for the word to go on."""
    print(json.dumps(content), flush=True)
    sys.stdin.readline()


exported = driver.create_export(None, volume, DEVICE)
again = driver.create_export(None, volume, DEVICE)
volume.update(provider_location=exported["location"], provider_auth=exported["auth"])
answer(exported=exported, again=again)

for _ in range(2):
    connected = driver.initialize_connection(volume, {"initiator": "iqn.1994-05.com.example:compute"})
driver.ensure_export(None, volume, DEVICE)
answer(connected=connected)

for _ in range(2):
    driver.terminate_connection(volume, {"initiator": "iqn.1994-05.com.example:compute"})
answer(terminated=True)

driver.remove_export(None, volume)
driver.remove_export(None, volume)
try:
    driver.create_export(None, dict(volume, name="volume-0000"), "/dev/no-such-device")
    failed = None
except CinderException as error:
    failed = type(error).__name__
answer(removed=True, failed=failed)
