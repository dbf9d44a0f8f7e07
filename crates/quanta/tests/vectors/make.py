#!/usr/bin/env python3
"""Writes the test vectors and the volume of the first version, from docs/quanta.md and without Lunette's code.

    python3 -m venv v && v/bin/pip install cryptography==50.0.2 pyaegis==0.3.1
    v/bin/python crates/quanta/tests/vectors/make.py

AES-256-GCM-SIV is the Python package cryptography's (OpenSSL). AEGIS-256 and AEGIS-256X4 are written here from draft-irtf-cfrg-aegis-aead-18, for no
package has an implementation of its own: pyaegis wraps the C sources that the crate aegis compiles. Both are compared, and the result with the
draft's vectors.
"""

import functools
import hashlib
import json
import operator
import os
import struct

import pyaegis
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

HERE = os.path.dirname(os.path.abspath(__file__))


def gf_double(b):
    return ((b << 1) ^ 0x1B) & 0xFF if b & 0x80 else b << 1


def sbox():
    # Powers of the generator 3, then the affine map of FIPS 197, section 5.1.1.
    exp, value = [], 1
    for _ in range(255):
        exp.append(value)
        value ^= gf_double(value)
    log = {b: i for i, b in enumerate(exp)}
    table = []
    for b in range(256):
        inverse = exp[-log[b] % 255] if b else 0
        rotated = 0
        for shift in range(5):
            rotated ^= (inverse << shift | inverse >> (8 - shift)) & 0xFF
        table.append(rotated ^ 0x63)
    return table


SBOX = sbox()
DOUBLE = [gf_double(b) for b in range(256)]


def xor(*blocks):
    return bytes(functools.reduce(operator.xor, column) for column in zip(*blocks))


def aes_round(state, key):
    s = [SBOX[state[(5 * i) % 16]] for i in range(16)]
    out = bytearray(16)
    for c in range(0, 16, 4):
        a, b, d, e = s[c : c + 4]
        out[c] = DOUBLE[a] ^ DOUBLE[b] ^ b ^ d ^ e
        out[c + 1] = a ^ DOUBLE[b] ^ DOUBLE[d] ^ d ^ e
        out[c + 2] = a ^ b ^ DOUBLE[d] ^ DOUBLE[e] ^ e
        out[c + 3] = DOUBLE[a] ^ a ^ b ^ d ^ DOUBLE[e]
    return xor(out, key)


class Aegis:
    """AEGIS-256 when degree is 1, AEGIS-256X2 and X4 when it is 2 and 4: state i of `states` works on block i of each run of `degree` blocks."""

    C0 = bytes.fromhex("000101020305080d1522375990e97962")
    C1 = bytes.fromhex("db3d18556dc22ff12011314273b528dd")

    def __init__(self, key, nonce, degree):
        k0, k1, n0, n1 = key[:16], key[16:], nonce[:16], nonce[16:]
        self.rate = 16 * degree
        first = [xor(k0, n0), xor(k1, n1), self.C1, self.C0, xor(k0, self.C0), xor(k1, self.C1)]
        self.states = [list(first) for _ in range(degree)]
        contexts = [bytes([i, degree - 1]).ljust(16, b"\0") for i in range(degree)]
        for _ in range(4):
            for m in (k0, k1, xor(k0, n0), xor(k1, n1)):
                for s, context in zip(self.states, contexts):
                    s[3], s[5] = xor(s[3], context), xor(s[5], context)
                self.update(m * degree)

    def update(self, m):
        for i, s in enumerate(self.states):
            self.states[i] = [aes_round(s[j - 1], s[j]) for j in range(6)]
            self.states[i][0] = xor(self.states[i][0], m[16 * i : 16 * i + 16])

    def encrypt(self, associated, plain):
        for at in range(0, len(associated), self.rate):
            self.update(associated[at : at + self.rate].ljust(self.rate, b"\0"))
        out = b""
        for at in range(0, len(plain), self.rate):
            m = plain[at : at + self.rate]
            z = b"".join(xor(s[1], s[4], s[5], bytes(a & b for a, b in zip(s[2], s[3]))) for s in self.states)
            out += xor(m, z)
            self.update(m.ljust(self.rate, b"\0"))
        lengths = struct.pack("<QQ", len(associated) * 8, len(plain) * 8)
        t = b"".join(xor(s[3], lengths) for s in self.states)
        for _ in range(7):
            self.update(t)
        return out, xor(*(block for s in self.states for block in s))


AEGIS = {"aegis-256": (1, pyaegis.Aegis256), "aegis-256x4": (4, pyaegis.Aegis256X4)}


def seal(cipher, key, nonce, associated, plain):
    if cipher in AEGIS:
        degree, libaegis = AEGIS[cipher]
        data, tag = Aegis(key, nonce, degree).encrypt(associated, plain)
        assert (data, tag) == tuple(bytes(x) for x in libaegis(16).encrypt_detached(key, nonce, plain, associated))
        return data, tag
    both = AESGCMSIV(key).encrypt(nonce[:12], plain, associated + nonce[12:])
    return both[:-16], both[-16:]


CRC_TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC_TABLE.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


CIPHERS = {"aegis-256": 1, "aes-256-gcm-siv": 2, "aegis-256x4": 3}


def edu(cipher, key, volume, position, version, epoch, nonce, plain):
    associated = b"LUNEDU01" + volume + struct.pack("<QQIHBB", position, version, epoch, len(plain), CIPHERS[cipher], 0)
    data, tag = seal(cipher, key, nonce, associated, plain)
    slot = nonce + tag + struct.pack("<QI", version, epoch)
    return data + slot + struct.pack("<I", crc32c(struct.pack("<Q", position) + data + slot))


def header(cipher, key, nonce, generation, h):
    fields = b"LUNQUANT" + struct.pack("<HBBI", 1, CIPHERS[cipher], h["placement"], h["size"])
    fields += h["volume"] + struct.pack("<QQII", h["quanta"], h["journal_len"], h["block_len"], h["flags"])
    fields += struct.pack("<IIHH", h["first_epoch"], h["newest_epoch"], h["group_data"], h["group_parity"])
    fields = fields.ljust(448, b"\0")
    last = struct.pack("<QI", generation, h["newest_epoch"])
    _, tag = seal(cipher, key, nonce, fields + last, b"")
    whole = fields + nonce + tag + last
    return whole + struct.pack("<I", crc32c(whole))


# GF(2^16) with the polynomial x^16 + x^5 + x^3 + x^2 + 1. A number stands for the sum of the elements of this basis that its bits choose.
BASIS = [0x0001, 0xACCA, 0x3C0E, 0x163E, 0xC582, 0xED2E, 0x914C, 0x4012, 0x6C98, 0x10D8, 0x6A72, 0xB900, 0xFDB8, 0xFB34, 0xFF38, 0x991E]


def element(number):
    return functools.reduce(operator.xor, (b for i, b in enumerate(BASIS) if number >> i & 1), 0)


def times(a, b):
    product = 0
    for i in range(16):
        product ^= (a << i) * (b >> i & 1)
    for i in range(30, 15, -1):
        product ^= (0x1002D << (i - 16)) * (product >> i & 1)
    return product


def power(a, n):
    result = 1
    while n:
        result, a, n = times(result, a) if n & 1 else result, times(a, a), n >> 1
    return result


NUMBERS = {element(n): n for n in range(1 << 16)}


def symbols(body):
    """The symbols of a body: of each 64 bytes, and of the last 60, byte i is the lower half of symbol i and byte i + half the length the upper one."""
    out = []
    for at in range(0, len(body), 64):
        piece = body[at : at + 64]
        half = len(piece) // 2
        out += [element(piece[i] | piece[i + half] << 8) for i in range(half)]
    return out


def unsymbols(values, length):
    out, values = b"", [NUMBERS[value] for value in values]
    for at in range(0, length, 64):
        half = min(64, length - at) // 2
        piece, values = values[:half], values[half:]
        out += bytes(value & 0xFF for value in piece) + bytes(value >> 8 for value in piece)
    return out


def parity_bodies(bodies, parity):
    """Parity EDU j is the sum, over the chunks of c data EDUs, of the value at element j of the polynomial of degree below c whose value at element
    c + i is data EDU i, for the EDUs i of the chunk. c is the least power of two that is not below the number of parity EDUs."""
    c = 1
    while c < parity:
        c *= 2
    data, out = [symbols(body) for body in bodies], []
    for j in range(parity):
        total = [0] * len(data[0])
        for i, body in enumerate(data):
            first = i // c * c
            above, below = 1, 1
            for other in range(first, first + c):
                if other != i:
                    above = times(above, element(j) ^ element(c + other))
                    below = times(below, element(c + i) ^ element(c + other))
            factor = times(above, power(below, (1 << 16) - 2))
            total = [t ^ times(factor, symbol) for t, symbol in zip(total, body)]
        out.append(unsymbols(total, len(bodies[0])))
    return out


def parity_vectors():
    vectors = []
    for data, parity in ((1, 1), (3, 1), (4, 2), (5, 3), (7, 4)):
        edus = [random_looking(f"parity {data} {parity} {i}", 576) for i in range(data)]
        bodies = parity_bodies([edu[:572] for edu in edus], parity)
        made = [body + struct.pack("<I", crc32c(struct.pack("<Q", 1000 + j) + body)) for j, body in enumerate(bodies)]
        vectors.append(
            {
                "data": data,
                "parity": parity,
                "position": 1000,
                "edus": [edu.hex() for edu in edus],
                "parity_edus": [edu.hex() for edu in made],
            }
        )
    return vectors


def pattern(start, length):
    """Plain text of the vectors: byte i is 31 i + start, modulo 256."""
    return bytes((31 * i + start) & 0xFF for i in range(length))


def random_looking(label, length):
    """Bytes without a rule that a mistake could share, from the names of what they are."""
    return hashlib.shake_256(label.encode()).digest(length)


def edu_vectors():
    vectors = []
    for cipher in CIPHERS:
        for size in (512, 1024, 2048, 4096):
            label = f"{cipher} {size}"
            key, volume, nonce = (random_looking(f"{label} {what}", n) for what, n in (("key", 32), ("volume", 16), ("nonce", 32)))
            position, version, epoch = 0x0000_1234_5678_9ABC, 0x1122_3344_5566_7788, 7
            sealed = edu(cipher, key, volume, position, version, epoch, nonce, pattern(size // 512, size))
            vectors.append(
                {
                    "cipher": cipher,
                    "size": size,
                    "key": key.hex(),
                    "volume": volume.hex(),
                    "position": position,
                    "version": version,
                    "epoch": epoch,
                    "seed": nonce.hex(),
                    "plain_start": size // 512,
                    "first_block": sealed[:16].hex(),
                    "slot": sealed[size:].hex(),
                }
            )
    return vectors


def header_vectors():
    vectors = []
    for cipher in CIPHERS:
        for placement in (1, 2):
            label = f"header {cipher} {placement}"
            key, nonce = random_looking(f"{label} key", 32), random_looking(f"{label} nonce", 32)
            fields = {
                "placement": placement,
                "size": 4096 if placement == 1 else 1024,
                "volume": random_looking(f"{label} volume", 16),
                "quanta": 0x0000_0102_0304_0506,
                "journal_len": 0 if placement == 1 else 1 << 20,
                "block_len": 4160 if placement == 1 else 512,
                "flags": placement - 1,
                "first_epoch": 3,
                "newest_epoch": 9,
                "group_data": 16 if placement == 1 else 0,
                "group_parity": 2 if placement == 1 else 0,
            }
            sealed = header(cipher, key, nonce, 5, fields)
            fields["volume"] = fields["volume"].hex()
            vectors.append({"cipher": cipher, "key": key.hex(), "seed": nonce.hex(), "generation": 5, **fields, "header": sealed.hex()})
    return vectors


def volume_v1():
    """A native volume of eight quanta of 512 bytes: 1 and 5 of epoch 1, 2 and 7 of epoch 2, the others never written."""
    keys = {1: bytes(range(32)), 2: bytes(range(32, 64))}
    volume, cipher = bytes(range(16)), "aegis-256"
    fields = {
        "placement": 1, "size": 512, "volume": volume, "quanta": 8, "journal_len": 0, "block_len": 576, "flags": 0,
        "first_epoch": 1, "newest_epoch": 2, "group_data": 0, "group_parity": 0,
    }
    blocks = []
    for generation in (2, 1):
        # Generation 1 is from before the second epoch.
        now = {**fields, "newest_epoch": generation}
        nonce = random_looking(f"volume header {generation}", 32)
        blocks.append(header(cipher, keys[generation], nonce, generation, now).ljust(576, b"\0"))
    for position in range(8):
        epoch = {1: 1, 5: 1, 2: 2, 7: 2}.get(position)
        if epoch is None:
            blocks.append(bytes(576))
        else:
            nonce = random_looking(f"volume quantum {position}", 32)
            blocks.append(edu(cipher, keys[epoch], volume, position, 100 + position, epoch, nonce, pattern(position, 512)))
    return b"".join(blocks)


def check_against_the_draft():
    """Vectors of draft-irtf-cfrg-aegis-aead-18, appendix A: AEGIS-256 vector 3 and AEGIS-256X4 vector 2."""
    key, nonce = bytes.fromhex("1001").ljust(32, b"\0"), bytes.fromhex("100002").ljust(32, b"\0")
    data, tag = Aegis(key, nonce, 1).encrypt(bytes(range(8)), bytes(range(32)))
    assert data.hex() == "f373079ed84b2709faee373584585d60accd191db310ef5d8b11833df9dec711"
    assert tag.hex() == "8d86f91ee606e9ff26a01b64ccbdd91d"
    associated, plain = bytes.fromhex("0102030401020304"), bytes.fromhex("04050607" * 30)
    data, tag = Aegis(bytes(range(32)), bytes(range(16, 48)), 4).encrypt(associated, plain)
    assert data.hex().startswith("bfc2085b7e8017da99b0b6d646ae4d01f4ba8f2e7dfca1d759ae48a135139b9a")
    assert tag.hex() == "b63b611b13975e2f3dc3cb6c2397bfcd"


def main():
    assert crc32c(b"123456789") == 0xE3069283
    check_against_the_draft()
    with open(os.path.join(HERE, "vectors.json"), "w") as out:
        json.dump({"edus": edu_vectors(), "headers": header_vectors(), "parity": parity_vectors()}, out, indent=1)
        out.write("\n")
    with open(os.path.join(HERE, "volume-1-native.bin"), "wb") as out:
        out.write(volume_v1())


main()
