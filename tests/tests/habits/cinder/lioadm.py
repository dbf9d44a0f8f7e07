"""Cinder's class LioAdm against cinder-rtstool.

Arguments: the folder with Cinder's package, the device of a volume, and the port of the portal.
"""

import sys

from parts import CinderException, Configuration, answer
from cinder.volume.targets.lio import LioAdm

_, _, DEVICE, PORT = sys.argv
driver = LioAdm(configuration=Configuration(PORT))
volume = {"id": "7f3a", "name": "volume-7f3a", "provider_location": None, "provider_auth": None}


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
