"""Cinder's class TgtAdm against tgt-admin and tgtadm.

Arguments: the folder with Cinder's package, the device of a volume, the port of the portal, and the folder that
targets.conf includes.
"""

import sys
import types

from parts import CinderException, Configuration, answer
from cinder.volume.targets.tgt import TgtAdm

_, _, DEVICE, PORT, FOLDER = sys.argv
driver = TgtAdm(configuration=Configuration(PORT, volumes_dir=FOLDER))
volume = {"id": "7f3a", "name": "volume-7f3a", "provider_location": None, "provider_auth": None}

# Of the database, the class asks for the user of the volume.
driver.db = types.SimpleNamespace(volume_get=lambda *_: volume)
exported = driver.create_export(None, volume, DEVICE)
volume.update(provider_location=exported["location"], provider_auth=exported["auth"])
driver.ensure_export(None, volume, DEVICE)
answer(exported=exported, connected=driver.initialize_connection(volume, {"initiator": "iqn.1994-05.com.example:compute"}))

driver.terminate_connection(volume, {"initiator": "iqn.1994-05.com.example:compute"})
driver.remove_export(None, volume)
driver.remove_export(None, volume)
try:
    driver.create_export(None, dict(volume, name="volume-0000"), "/dev/no-such-device")
    failed = None
except CinderException as error:
    failed = type(error).__name__
answer(removed=True, failed=failed)
