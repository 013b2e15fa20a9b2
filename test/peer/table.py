# SPDX-License-Identifier: BSD-3-Clause
"""How daemons describe themselves, and what follows from it: a group's tag, its digest and its
links' tokens. Integers have the lowest byte first here."""

import hashlib
import ipaddress
import struct

from .checksums import crc32c, siphash

ENTRY_BYTES, MAGIC, ENTRY_VERSION = 512, 0x47575249, 3
# (name, offset in bytes, size in bytes)
PLACES = (
    ("magic", 0, 4), ("version", 4, 2), ("bytes", 6, 2), ("incarnation", 8, 8),
    ("payload_bytes", 16, 4), ("features", 20, 4), ("base_port", 24, 2), ("lanes", 26, 2),
    ("addresses", 28, 2), ("secret", 32, 4), ("checksum", 36, 4), ("direct_kib", 232, 2),
    ("folds", 234, 2), ("transfers", 236, 2), ("two_step_kib", 238, 2), ("gathered_kib", 240, 2),
    ("gathered_ranks", 242, 2), ("wants_to_own", 244, 2), ("without_members", 246, 2),
    ("source_ports", 248, 2), ("tiles", 250, 2), ("formats", 252, 2), ("tiles_wanted", 254, 2),
    ("packet_ns", 256, 2), ("byte_ps", 258, 2), ("hop_ns", 260, 4),
    ("rate", 264, 2),
    # doc/security.md, In the entry: all of these are zero if the daemon has no key.
    ("key_schedule", 280, 2), ("wanted", 282, 1), ("key_count", 283, 1), ("user", 284, 4),
    ("sealed_payload_bytes", 376, 4))


def encode_entry(values, address, prefix, keys=None):
    """@param values by the names above; address: one of IPv4, as text; prefix: its bits; keys:
    sealing.Keys, or None."""
    entry = bytearray(ENTRY_BYTES)
    fixed = {"magic": MAGIC, "version": ENTRY_VERSION, "bytes": ENTRY_BYTES, "addresses": 1}
    for name, at, size in PLACES:
        entry[at:at + size] = {**values, **fixed}.get(name, 0).to_bytes(size, "little")
    entry[40:58] = ipaddress.ip_address(address).packed.ljust(16, b"\0") + bytes([4, prefix])
    return with_checksum(entry if keys is None else keys.write(bytes(entry)))


def with_checksum(entry):
    """The entry with its checksum made right."""
    entry = bytearray(entry)
    entry[36:40] = bytes(4)
    entry[36:40] = crc32c(entry).to_bytes(4, "little")
    return bytes(entry)


class Entry:
    """A decoded entry: its values by the names above as attributes, and address (text)."""

    def __init__(self, data):
        self.data = bytes(data)
        for name, at, size in PLACES:
            setattr(self, name, int.from_bytes(self.data[at:at + size], "little"))
        zeroed = self.data[:36] + bytes(4) + self.data[40:]
        if (len(data), self.magic, self.version, self.bytes, self.checksum) != (
                ENTRY_BYTES, MAGIC, ENTRY_VERSION, ENTRY_BYTES, crc32c(zeroed)):
            raise ValueError(f"an entry that is not the page's: {self.data[:48].hex()}")
        if any(self.data[280 if self.key_schedule == 0 else 380:]) or any(self.data[30:32]):
            raise ValueError("an entry's reserved bytes are not zero")
        if self.key_schedule not in (0, 1) or self.wanted > 2 or self.key_count > 2:
            raise ValueError(f"an entry's keys that are not the page's: {self.data[280:288].hex()}")
        self.public_key = self.data[288:320]
        self.key_ids = [self.data[at:at + 8] for at in (320, 344)][:self.key_count]
        self.macs = dict(zip(self.key_ids, (self.data[328:344], self.data[352:368])))
        self.job_key_id = self.data[368:376]
        self.address = str(ipaddress.ip_address(self.data[40:44]))
        self.exchange_bytes = (self.features >> 16) << 10
        self.eager_chunks = self.features & 0x3FFF
        self.data_has_crc = not self.features >> 14 & 1


def group_tag(group_id, epoch):
    return siphash(0, 0, struct.pack("<QI", group_id, epoch)) >> 32


def mode(entries):
    """0 off, 1 authenticate, 2 encrypt."""
    return max(entry.wanted for entry in entries)


def payload_bytes(entries):
    if mode(entries):
        return min(entry.sealed_payload_bytes for entry in entries)
    return min(entry.payload_bytes for entry in entries) & ~63


def table_digest(group_id, epoch, entries, alone=False):
    return siphash(0x6772616477697265, 0x7461626C65207631,
                   table_bytes(group_id, epoch, entries, alone))


def table_hash(group_id, epoch, entries, alone=False):
    return hashlib.sha256(table_bytes(group_id, epoch, entries, alone)).digest()


def table_bytes(group_id, epoch, entries, alone):
    """What both are of. Of one member at each rank, and no ranks without members.
    @param alone the group is for transfers alone."""
    data = struct.pack("<QIHHIBI", group_id, epoch, len(entries), 1, payload_bytes(entries),
                       min(entry.lanes for entry in entries), entries[0].features)
    data += b"".join(entry.data for entry in entries)
    for rank, entry in enumerate(entries):
        if entry.wants_to_own:
            data += struct.pack("<H", rank)
    if alone:
        data += struct.pack("<I", 0x78666572)
    return data


def token(group_id, epoch, lane, entries, sender, receiver):
    """Of the link on that lane from rank sender to rank receiver, in a group without keys."""
    one, other = entries[sender], entries[receiver]
    return siphash(one.secret, other.secret,
                   struct.pack("<BQIBQQHH", 3, group_id, epoch, lane, one.incarnation,
                               other.incarnation, sender, receiver))


def call_digest(before, op_seq, called):
    """@param before digest of the op before, 0 for the first; called: 16 bytes, from byte 80 of an
    acknowledgement on."""
    return siphash(before, op_seq, called)
