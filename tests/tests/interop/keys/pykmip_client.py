"""PyKMIP's client at a key server: python3 pykmip_client.py HOST PORT FOLDER, with the client's certificate in FOLDER.

It exits with 1 when an answer is not the expected one, and prints the identifiers of the keys that it destroyed.
"""

import sys

from kmip import enums
from kmip.core.factories.attributes import AttributeFactory
from kmip.pie.client import ProxyKmipClient
from kmip.pie.exceptions import KmipOperationFailure
from kmip.pie.objects import OpaqueObject, SecretData, SymmetricKey
from kmip.services.kmip_client import KMIPProxy

host, port, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
files = [folder + "/" + name for name in ("client-cert.pem", "client-key.pem", "ca-cert.pem")]
AES = enums.CryptographicAlgorithm.AES
ENCRYPT = [enums.CryptographicUsageMask.ENCRYPT, enums.CryptographicUsageMask.DECRYPT]
Reason = enums.ResultReason


def check(condition, what):
    if not condition:
        sys.exit("wrong: " + what)


def refused(reason, call, *arguments):
    try:
        call(*arguments)
    except KmipOperationFailure as failure:
        check(failure.reason == reason, "%s instead of %s" % (failure.reason, reason))
    else:
        sys.exit("not refused: %s%s" % (call.__name__, arguments))


def attribute(kind, value):
    return AttributeFactory().create_attribute(kind, value)


def one_version(version):
    with ProxyKmipClient(hostname=host, port=port, cert=files[0], key=files[1], ca=files[2], config="none",
                         ssl_version="PROTOCOL_TLSv1_2", kmip_version=version) as client:
        name = "key of " + version.name
        key = client.create(AES, 256, name=name, cryptographic_usage_mask=ENCRYPT)
        got = client.get(key)
        check(len(got.value) == 32 and got.cryptographic_length == 256, "the key")
        by_name = attribute(enums.AttributeType.NAME, name)
        check(client.locate(attributes=[by_name]) == [key], "locate by name")
        client.activate(key)
        active = attribute(enums.AttributeType.STATE, enums.State.ACTIVE)
        check(client.locate(attributes=[by_name, active]) == [key], "locate by state")
        _, attributes = client.get_attributes(key)
        found = {attribute.attribute_name.value: attribute.attribute_value for attribute in attributes}
        check(found["State"].value == enums.State.ACTIVE, "the state")
        check(found["Cryptographic Length"].value == 256, "the length")
        refused(Reason.PERMISSION_DENIED, client.activate, key)
        refused(Reason.PERMISSION_DENIED, client.destroy, key)
        client.revoke(enums.RevocationReasonCode.CESSATION_OF_OPERATION, key, "the end of the test")
        check(client.get(key).value == got.value, "a revoked key still decrypts")
        client.destroy(key)
        refused(Reason.ITEM_NOT_FOUND, client.get, key)
        refused(Reason.ITEM_NOT_FOUND, client.get, "no such object")
        check(client.locate(attributes=[by_name]) == [], "a destroyed key is not located")
        objects = [
            SymmetricKey(AES, 128, b"\x01" * 16, masks=ENCRYPT, name="registered"),
            SecretData(b"open sesame", enums.SecretDataType.PASSWORD, masks=[enums.CryptographicUsageMask.VERIFY]),
            OpaqueObject(b"anything", enums.OpaqueDataType.NONE),
        ]
        for registered in objects:
            number = client.register(registered)
            check(client.get(number).value == registered.value, "a registered object")
            client.destroy(number)
        print(key)


def questions():
    proxy = KMIPProxy(host=host, port=port, certfile=files[0], keyfile=files[1], ca_certs=files[2], config="none",
                      ssl_version="PROTOCOL_TLSv1_2", kmip_version=enums.KMIPVersion.KMIP_1_4)
    proxy.open()
    asked = [enums.QueryFunction.QUERY_OPERATIONS, enums.QueryFunction.QUERY_SERVER_INFORMATION]
    answer = proxy.query(query_functions=asked)
    check(enums.Operation.DISCOVER_VERSIONS in answer.operations, "the operations")
    check("Lunette" in answer.vendor_identification, "the vendor")
    versions = [(version.major, version.minor) for version in proxy.discover_versions().protocol_versions]
    check(versions == [(1, 4), (1, 3), (1, 2), (1, 1), (1, 0)], "the versions")
    proxy.close()


for minor in range(5):
    one_version(enums.KMIPVersion["KMIP_1_%d" % minor])
questions()
