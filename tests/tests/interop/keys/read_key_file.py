"""An independent reader of key files, written after docs/keys.md: python3 read_key_file.py FILE HOLDER KEY.

HOLDER has a key server's object, whose 32 bytes are KEY in hexadecimal digits. It prints one line for each epoch: number, cipher, data key.
"""

import hmac
import json
import struct
import sys

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

# The field of POLYVAL (RFC 8452, section 3): x^128 + x^127 + x^126 + x^121 + 1, and x^-128.
FIELD = 1 << 128 | 1 << 127 | 1 << 126 | 1 << 121 | 1
INVERSE = 1 << 127 | 1 << 124 | 1 << 121 | 1 << 114 | 1
CIPHERS = {"aegis-256": 1, "aes-256-gcm-siv": 2}


def multiply(a, b):
    product = 0
    while b:
        if b & 1:
            product ^= a
        a, b = a << 1, b >> 1
    for bit in range(product.bit_length() - 1, 127, -1):
        if product >> bit & 1:
            product ^= FIELD << (bit - 128)
    return product


def aes(key, block):
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return encryptor.update(block) + encryptor.finalize()


def padded(data):
    return data + bytes(-len(data) % 16)


def unwrap(key, place, wrapped):
    """Opens what AES-256-GCM-SIV sealed: nonce, ciphertext, tag."""
    nonce, text, tag = wrapped[:12], wrapped[12:-16], wrapped[-16:]
    halves = [aes(key, struct.pack("<I", number) + nonce)[:8] for number in range(6)]
    authentication, encryption = b"".join(halves[:2]), b"".join(halves[2:])
    first = tag[:15] + bytes([tag[15] | 0x80])
    start = struct.unpack("<I", first[:4])[0]
    blocks = (len(text) + 15) // 16
    stream = b"".join(aes(encryption, struct.pack("<I", (start + n) % 2**32) + first[4:]) for n in range(blocks))
    plain = bytes(a ^ b for a, b in zip(text, stream))
    total = padded(place) + padded(plain) + struct.pack("<QQ", 8 * len(place), 8 * len(plain))
    sum_ = 0
    for at in range(0, len(total), 16):
        sum_ ^= int.from_bytes(total[at:at + 16], "little")
        sum_ = multiply(multiply(sum_, int.from_bytes(authentication, "little")), INVERSE)
    digest = bytearray(sum_.to_bytes(16, "little"))
    for at in range(12):
        digest[at] ^= nonce[at]
    digest[15] &= 0x7F
    if not hmac.compare_digest(aes(encryption, bytes(digest)), tag):
        sys.exit("a wrapped key was altered, or does not belong here")
    return plain


def derive(key, salt, purpose):
    return HKDF(SHA256(), 32, salt, b"lunette key file 1: " + purpose).derive(key)


def text(value):
    return struct.pack(">H", len(value)) + value.encode()


path, name, key = sys.argv[1], sys.argv[2], bytes.fromhex(sys.argv[3])
content = open(path, "rb").read()
file = json.loads(content)
volume = bytes.fromhex(file["volume"])
holder = next(holder for holder in file["holders"] if holder["name"] == name)
lock = holder["lock"]["kmip"]
place = b"lunette key file 1: volume key" + volume + text(name) + b"\x02" + text(lock["server"]) + text(lock["object"])
volume_key = unwrap(derive(key, volume, b"holder"), place, bytes.fromhex(holder["volume_key"]))
authenticated, _, _ = content.rpartition(b',\n  "mac": "')
code = hmac.digest(derive(volume_key, volume, b"authentication"), authenticated, "sha256")
if not hmac.compare_digest(code.hex(), file["mac"]):
    sys.exit("the key file was altered")
wrapping = derive(volume_key, volume, b"data keys")
for epoch in file["epochs"]:
    number, cipher = epoch["epoch"], epoch["cipher"]
    place = b"lunette key file 1: data key" + volume + struct.pack(">IB", number, CIPHERS[cipher])
    print(number, cipher, unwrap(wrapping, place, bytes.fromhex(epoch["key"])).hex())
