# SPDX-License-Identifier: BSD-3-Clause
"""The sums that doc/protocol names: CRC32C, SipHash-2-4 and the Internet checksum."""

import struct

_MASK = (1 << 64) - 1


def _byte_table():
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        yield byte


_BYTES = list(_byte_table())
# Two bytes a step: a megabyte takes a third of a second less.
_PAIRS = [_BYTES[(_BYTES[w & 255] ^ w >> 8) & 255] ^ (_BYTES[w & 255] ^ w >> 8) >> 8
          for w in range(65536)]


def crc32c(data):
    """Castagnoli's CRC of bytes, as a number (RFC 3720 appendix B.4)."""
    crc, even = 0xFFFFFFFF, len(data) & ~1
    for (word,) in struct.iter_unpack("<H", bytes(data[:even])):
        crc = crc >> 16 ^ _PAIRS[(crc ^ word) & 0xFFFF]
    for byte in data[even:]:
        crc = crc >> 8 ^ _BYTES[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def _rotate(value, bits):
    return (value << bits | value >> (64 - bits)) & _MASK


def _round(v0, v1, v2, v3):
    v0, v2 = (v0 + v1) & _MASK, (v2 + v3) & _MASK
    v1, v3 = _rotate(v1, 13) ^ v0, _rotate(v3, 16) ^ v2
    v0 = _rotate(v0, 32)
    v2, v0 = (v2 + v1) & _MASK, (v0 + v3) & _MASK
    v1, v3 = _rotate(v1, 17) ^ v2, _rotate(v3, 21) ^ v0
    return v0, v1, _rotate(v2, 32), v3


def siphash(k0, k1, data):
    """SipHash-2-4 of bytes under a key of two 64-bit numbers, as a 64-bit number."""
    state = (k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D,
             k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573)
    whole = len(data) & ~7
    tail = data[whole:] + bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for (word,) in struct.iter_unpack("<Q", bytes(data[:whole]) + tail):
        state = (*state[:3], state[3] ^ word)
        state = _round(*_round(*state))
        state = (state[0] ^ word, *state[1:])
    state = (state[0], state[1], state[2] ^ 255, state[3])
    for _ in range(4):
        state = _round(*state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def internet_checksum(data):
    """RFC 1071, of an even number of bytes."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
