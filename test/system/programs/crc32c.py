# SPDX-License-Identifier: BSD-3-Clause
"""CRC32C (Castagnoli), as packets and daemons' entries have it."""


def _table():
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        yield byte


_TABLE = list(_table())


def crc32c(data):
    """Of bytes, as a number."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
