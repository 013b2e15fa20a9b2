# SPDX-License-Identifier: BSD-3-Clause
"""The numbers that doc/protocol works out, against this peer's."""

from . import table, wire, wrong
from .checksums import crc32c
from .net import require
from .ops import Call

HELLO = """
0201000191daaf1d000000000000000100000000000000000000000000000000
00000000000000000000000000000000f5e1e9135f61820f7c52f626d38d345c
0123456789abcdef00000007000000001111111111111111231b274c799b3984
000022c000000000000000010002000200000000000000800000000000000000
0100000100000000"""
ENTRY = {"features": 0x02008020, "payload_bytes": 8896, "base_port": 18515, "lanes": 2,
         "direct_kib": 64, "folds": 1024, "transfers": 1, "two_step_kib": 16, "gathered_kib": 256,
         "gathered_ranks": 64, "without_members": 1, "source_ports": 2}
GROUP, EPOCH = 0x0123456789ABCDEF, 7
CALLS = ((Call(wire.BARRIER, tag=7), 0x5603C731500936EB),
         (Call(wire.ALL_REDUCE, "int32", 5, "max", tag=9), 0x062E07851635402F),
         (Call(wire.REDUCE, "bf16", 6, "prod", root=2), 0xE8D83C96F4C0F986))


def check_tiles():
    """No daemon has tiles yet: all that can be said is that this peer's decoder takes what is right
    and drops what is wrong, for the reason that the page gives."""
    common = {"lane": 0, "tag": 1, "number": 1, "from_rank": 0, "token": 1}
    elsewhere = ("unknown_group", "foreign", "unsealed", "token")  # the receiver's own affair
    for kind in wire.TILES:
        right = wrong.right_tile(kind, common)
        require(wire.decode(right, lambda packet: None).op_seq == 1, f"a packet of type {kind}")
        for what, packet, reason in wrong.of_kind(kind, right, (2,)):
            if reason in elsewhere or what in ("lane 0x1", "lane 0xf", "an element less"):
                continue
            try:
                taken = wire.decode(packet, lambda packet: None)
                # A receiver looks at that of a chunk when it takes it.
                dropped = "taken" if taken.payload_crc == crc32c(taken.payload) else "payload_crc"
            except wire.Dropped as why:
                dropped = str(why)
            require(dropped == reason, f"type {kind}: {what} is {reason}, not {dropped}")


def check_all():
    """Fails by the first that differs."""
    check_tiles()
    entries = [table.Entry(table.encode_entry({**ENTRY, "incarnation": i, "secret": s}, a, 24))
               for i, s, a in ((0x1111111111111111, 0x0A0B0C0D, "10.0.0.1"),
                               (0x2222222222222222, 0x1A1B1C1D, "10.0.0.2"))]
    token = table.token(GROUP, EPOCH, 1, entries, 0, 1)
    digest = table.table_digest(GROUP, EPOCH, entries)
    hello = wire.encode(
        wire.HELLO, {"lane": 1, "tag": table.group_tag(GROUP, EPOCH), "number": 1, "from_rank": 0,
                     "token": token},
        {"group_id": GROUP, "epoch": EPOCH, "incarnation": entries[0].incarnation,
         "digest": digest, "payload_bytes": 8896, "sender": 0, "to_rank": 1, "nranks": 2,
         "lanes": 2, "credit": 128, "source": 1, "members": 1}, bytes(8896 - 72))
    for what, got, wanted in (
            ("CRC32C", crc32c(b"123456789"), 0xE3069283),
            ("tag of group 0", table.group_tag(0, 0), 0x7FDF4CE0),
            ("tag", table.group_tag(GROUP, EPOCH), 0x91DAAF1D),
            ("checksum of rank 0", entries[0].checksum, 0xC0250E31),
            ("checksum of rank 1", entries[1].checksum, 0x2A9A5740),
            ("digest of the table", digest, 0x231B274C799B3984),
            ("token", token, 0x7C52F626D38D345C),
            ("bytes of the hello", len(hello), 8960)):
        require(got == wanted, f"the {what} is {wanted:#x}, not {got:#x}")
    begin = bytes.fromhex(HELLO)
    require(hello == begin + bytes(len(hello) - len(begin)), "the hello has the page's bytes")
    before = 0
    for op_seq, (call, wanted) in enumerate(CALLS, 1):
        before = table.call_digest(before, op_seq, call.called())
        require(before == wanted, f"the digest of op {op_seq} is {wanted:#x}, not {before:#x}")
