# SPDX-License-Identifier: BSD-3-Clause
"""Frames that are wrong in a field of Ethernet, IPv4 or UDP around a right packet, and frames that
differ from what a peer sends and are right all the same, as the tables of doc/protocol say."""

import struct

from .checksums import internet_checksum
from .net import ETHERNET_BYTES, IP_BYTES

IP, UDP = ETHERNET_BYTES, ETHERNET_BYTES + IP_BYTES


def changed(frame, at, format_, value, sealed=True):
    """A copy with another value at a byte, and IPv4's checksum right unless told otherwise."""
    frame = bytearray(frame)
    struct.pack_into(format_, frame, at, value)
    if sealed:
        struct.pack_into(">H", frame, IP + 10, 0)
        struct.pack_into(">H", frame, IP + 10, internet_checksum(frame[IP:UDP]))
    return frame


def wrong(frame):
    """(what, frame, reason)."""
    total, = struct.unpack_from(">H", frame, IP + 2)
    length = total - IP_BYTES
    checksum, = struct.unpack_from(">H", frame, IP + 10)
    for what, at, format_, values, reason in (
            ("EtherType", 12, ">H", (0x0801, 0x88B5, 0xFFFF), "foreign"),
            ("IPv4 version and header length", IP, "B", (0x55, 0x05, 0x44, 0x40), "malformed"),
            ("IPv4 total length", IP + 2, ">H", (total + 1, 65535, IP_BYTES + 7), "short"),
            ("IPv4 total length, less than UDP's", IP + 2, ">H", (total - 1,), "short"),
            ("IPv4 total length, below a header's", IP + 2, ">H", (0, IP_BYTES - 1), "malformed"),
            ("IPv4 protocol", IP + 9, "B", (0, 6, 255), "foreign"),
            ("IPv4 source", IP + 15, "B", (99,), "foreign"),
            ("IPv4 destination", IP + 19, "B", (99,), "foreign"),
            ("UDP port", UDP + 2, ">H", (18514, 18516, 4791), "foreign"),
            ("UDP length", UDP + 4, ">H", (0, 7), "malformed"),
            ("UDP length, beyond IPv4's", UDP + 4, ">H", (length + 1, 65535), "short"),
            ("UDP length, that cuts the packet", UDP + 4, ">H", (length - 1, 8), "short")):
        for value in values:
            yield f"{what} {value:#x}", changed(frame, at, format_, value), reason
    yield "IPv4 checksum", changed(frame, IP + 10, ">H", checksum ^ 1, sealed=False), "malformed"
    # Sixty bytes of header do not fit a frame of sixty bytes.
    yield "an IPv4 header beyond the frame", changed(frame[:60], IP, "B", 0x4F), "short"


def right(frame):
    """(what, frame) of those that are taken."""
    for what, at, format_, value in (
            ("identification", IP + 4, ">H", 0x1234), ("time to live", IP + 8, "B", 1),
            ("DSCP", IP + 1, "B", 0xB8), ("ECN", IP + 1, "B", 2), ("UDP source port", UDP, ">H", 4),
            ("UDP checksum", UDP + 6, ">H", 0x1234), ("fragments allowed", IP + 6, ">H", 0)):
        yield what, changed(frame, at, format_, value)
    yield "what follows the datagram", frame + b"\x5a" * 7
    total, = struct.unpack_from(">H", frame, IP + 2)
    options = changed(changed(frame, IP + 2, ">H", total + 4), IP, "B", 0x46)
    options = options[:UDP] + b"\x01\x01\x01\x00" + options[UDP:]
    struct.pack_into(">H", options, IP + 10, 0)
    struct.pack_into(">H", options, IP + 10, internet_checksum(options[IP:UDP + 4]))
    yield "options", options
