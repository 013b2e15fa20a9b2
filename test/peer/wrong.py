# SPDX-License-Identifier: BSD-3-Clause
"""Packets of every kind, each wrong in one field, with the reason for which doc/protocol says
that a receiver drops them. What is made is the same in every run."""

from . import wire
from .wire import COMMON, FIELDS, HEADER, put, seal

U32, U48, U64 = (1 << 32) - 1, (1 << 48) - 1, (1 << 64) - 1
# Of a field of each kind: values that no receiver may take, and the reason.
_CALL = (("op_seq", (0,), "malformed"),
         ("collective_datatype", (0x08, 0x0F, 0x10, 0x60, 0xA0, 0xC0, 0xF0), "malformed"),
         ("redop", (9, 255), "malformed"), ("root", (1, 65535), "malformed"))
_HELLO = (("group_id", (1, U64), "state"), ("epoch", (0, 2, 0xFFFFFFFF), "state"),
          ("incarnation", (0, 1), "state"), ("sender", (1, 2, 65535), "malformed"),
          ("to_rank", (0, 2, 65535), "malformed"), ("nranks", (0, 1, 1025, 65535), "malformed"),
          ("lanes", (0, 17, 65535), "malformed"), ("payload_bytes", (0,), "malformed"),
          ("source", (33, 255), "malformed"), ("heard_source", (33, 255), "malformed"))
_RECEIPT = (("received", (1 << 20, U64), "malformed"),)
_PAIR = (("source", (2, 65535), "bad_chunk"), ("destination", (2, 65535), "bad_chunk"))
_STREAM = ("stream", (1, 64, 65535), "bad_chunk")
_PIECE = _PAIR + (("bytes", (1 << 48 | 1, U64), "malformed"), ("call", (4, 255), "malformed"))
_TILE = _CALL + (("format_bits", (0x03, 0x07, 0x08, 0x30, 0xF0, 0xFF), "malformed"),)
_BYE = (("posted_by_all", (1, U64), "malformed"),)
VALUES = {
    wire.HELLO: _HELLO,
    wire.HELLO_ACK: _HELLO,
    wire.DATA: _CALL + (("hop", (2, 5, 2045), "bad_chunk"), ("hop", (2046, 65535), "malformed"),
                        ("chunk", (30, 58, 1 << 20, 0xFFFFFFFF), "bad_chunk"),
                        ("count", (0, 1, 351), "malformed"),
                        ("op_seq", (1000, U64), "op_ahead")),
    wire.ACK: (("onwards", (3, 65535), "malformed"), ("by_all", (3, 65535), "malformed"),
               ("called_seq", (3, U64), "malformed"), ("range_count", (1, 64), "short"),
               ("range_count", (65, 255), "malformed")),
    wire.ABORT: (("code", (0, 11, 255), "malformed"), ("culprit", (2, 65535), "malformed"),
                 ("reporter", (2, 65535), "malformed")),
    wire.BYE: _BYE,
    wire.BYE_ACK: _BYE,
    wire.CHECK: (("op_seq", (0,), "malformed"), ("origin", (1024, 65535), "malformed"),
                 ("origin", (2, 1023), "state")),
    wire.CONTRIBUTION: _CALL + (("received_below", (2, 65535), "malformed"),
                                ("chunk", (9, 64, 0xFFFFFFFF), "bad_chunk"),
                                ("step", (1, 10), "bad_chunk"), ("step", (11, 255), "malformed"),
                                ("since", (2, 255), "malformed"), ("since", (1,), "bad_chunk"),
                                ("op_seq", (1000, U64), "op_ahead")),
    wire.RECEIPT: _RECEIPT,
    wire.INQUIRY: _RECEIPT,
    wire.PIECE: _PIECE + (("sequence", (0,), "malformed"),
                          ("sequence", (3, U48), "op_ahead"), _STREAM,
                          ("bytes", (0, 1407), "malformed"), ("bits", (1, 2, 4, 255), "malformed"),
                          ("chunk", (15, 64, 0xFFFFFFFF), "bad_chunk"),
                          ("source", (1,), "malformed"), ("destination", (0,), "malformed")),
    wire.OFFER: _PIECE + (("sequence", (3, U48), "op_ahead"), _STREAM,
                          ("chunk", (1, 0xFFFFFFFF), "malformed"),
                          ("bits", (4, 128, 255), "malformed"),
                          ("source", (1,), "malformed"), ("destination", (0,), "malformed")),
    wire.PULL: _PAIR + (_STREAM, ("first", (16, 0xFFFFFFFF), "bad_chunk"),
                        ("wanted", (1 << 15, 1 << 63), "bad_chunk"),
                        ("bits", (4, 128, 255), "malformed"), ("source", (0,), "malformed"),
                        ("destination", (1,), "malformed")),
    wire.TILE_PIECE: _TILE + (("format_bits", (1, 4, 5), "malformed"),
                              ("since", (1, 255), "malformed"), ("count", (0, 1, 15), "malformed")),
    # The right one has elements, so its op has entered.
    wire.TILE_CALL: _TILE + (("format_bits", (2, 4, 5), "malformed"),
                             ("since", (2, 255), "malformed")),
    wire.TILE_PULL: (("op_seq", (0,), "malformed"), ("first", (1, 201, U32), "malformed"),
                     ("grant", (0, 199, 257, U32), "malformed"), ("over", (2, 65535), "malformed"),
                     ("bits", (0x06, 0x0C, 0x0E, 0x14, 0x84), "malformed")),
}
# A receiver looks at these before it asks whether the group has tiles. If not: `foreign`.
BEFORE_FOREIGN = ("short", "version", "header_crc", "type", "unknown_group")


def right_tile(kind, common):
    """Of tiles, as a receiver in a group that has them takes it."""
    call = {"op_seq": 1, "count": 16, "call_tag": 5}
    if kind == wire.TILE_PIECE:
        return wire.encode(kind, common, {**call, "chunk": 7}, bytes(range(64)))
    if kind == wire.TILE_CALL:
        return wire.encode(kind, common, {**call, "echo": 9, "since": 1, "format_bits": 0x21})
    # The last that is granted.
    wanted = (1 << 7).to_bytes(8, "big")
    return wire.encode(kind, common, {"op_seq": 1, "first": 0, "grant": 200, "done": 3, "over": 1,
                                      "bits": 5}, bytes(24) + wanted)


def of_tiles(packet, kind):
    """What a field alone does not say."""
    def more(fields, payload=None):
        wrong = bytearray(packet[:HEADER] + (packet[HEADER:] if payload is None else payload))
        for name, value in fields.items():
            put(wrong, FIELDS[kind][name], value)
        return seal(wrong)

    if kind == wire.TILE_PULL:
        for what, bits in (("nothing", 0), ("what is not granted", 1 << 8),
                           ("what is granted, and the next", 3 << 7), ("the last bit", 1 << 63)):
            payload = bytes(24) + bits.to_bytes(8, "big")
            yield f"{what} is wanted", more({}, payload), "malformed"
        yield "a repair without bits", more({}, b""), "short"
        owner = {"first": 0, "grant": 0}
        for what, values in (("done", {"bits": 2, "over": 0}), ("over", {"bits": 2, "done": 0}),
                             ("all of parts", {"bits": 8, "done": 0, "over": 0, **owner}),
                             ("all, and a grant", {"bits": 10, "done": 0, "over": 0})):
            yield f"{what} of a puller", more(values, b""), "malformed"
        return
    for what, values in (("int8 of fp64", {"collective_datatype": 1, "format_bits": 0x20}),
                         ("bf16 of bf16", {"collective_datatype": 3, "format_bits": 0x10}),
                         ("int8 of a broadcast", {"collective_datatype": 0x30, "root": 1,
                                                  "format_bits": 0x20}),
                         ("bf16 of an all-gather", {"collective_datatype": 0x40,
                                                    "format_bits": 0x10}),
                         ("int8 of max", {"redop": 3, "format_bits": 0x20})):
        yield what, more(values), "malformed"
    if kind == wire.TILE_CALL:
        nothing = {"count": 0, "call_tag": 0, "since": 0, "format_bits": 4}
        for name, value in (("count", 1), ("call_tag", 1), ("since", 1), ("redop", 1),
                            ("format_bits", 5), ("format_bits", 0x14),
                            ("collective_datatype", 1), ("collective_datatype", 0x40)):
            yield f"not entered, but {name} {value:#x}", more({**nothing, name: value}), "malformed"



def changed(packet, place, value, sealed=True):
    """A copy with another value in a field, with right CRCs unless told otherwise."""
    packet = bytearray(packet)
    put(packet, place, value)
    return seal(packet) if sealed else packet


def read(packet, place):
    at, size = place
    return int.from_bytes(packet[at:at + size], "big")


def header(packet, kind, tokens):
    """Wrong in a field that all kinds have. @param tokens others than the link's."""
    crcs = {name: read(packet, COMMON[name]) for name in ("header_crc", "payload_crc")}
    flags = (2, 4, 128, 255) if kind in wire.REPEATED else (1, 2, 6, 128)
    for name, values, reason in (
            ("version", (0, 1, 3, 255), "version"), ("type", (0, 19, 255), "type"),
            # Those that say how it is sealed are looked at before the token.
            ("flags", [flag for flag in flags if flag & 6], "unsealed"),
            ("flags", [flag for flag in flags if not flag & 6], "malformed"),
            ("lane", (1, 15, 16, 255), "malformed"),
            ("tag", (read(packet, COMMON["tag"]) ^ 1, 0), "unknown_group"),
            ("number", (0, wire.NUMBER_MAX + 1, U64), "malformed"),
            ("from_rank", (1, 2, 1023, 65535), "foreign"), ("token", tokens, "token")):
        for value in values:
            yield f"{name} {value:#x}", changed(packet, COMMON[name], value), reason
    for bit in (1, 1 << 31):
        place = COMMON["header_crc"]
        yield f"header_crc ^ {bit:#x}", changed(packet, place, crcs["header_crc"] ^ bit,
                                                sealed=False), "header_crc"
        wrong = seal(bytearray(packet), crcs["payload_crc"] ^ bit)
        yield f"payload_crc ^ {bit:#x}", wrong, "payload_crc"


def zeros(packet, kind):
    """Not zero where nothing is."""
    fields = FIELDS[kind]
    used = {at + i for name, (at, size) in fields.items() for i in range(size)
            if not name.startswith("reserved")}
    bytes_ = [at for at in range(16, 46) if at not in used]
    bytes_ += [at + i for name, (at, size) in fields.items() for i in range(size)
               if name.startswith("reserved") and at >= HEADER]
    for at in bytes_:
        yield f"byte {at}", changed(packet, (at, 1), 0x80), "malformed"


def lengths(packet, kind):
    for size in (0, 1, HEADER - 1):
        yield f"{size} bytes", packet[:size], "short"
    if kind in wire.CHUNKS:
        yield "no payload", seal(packet[:HEADER]), "short"
        yield "half an element", seal(packet[:HEADER + 2]), (
            "bad_chunk" if kind == wire.PIECE else "short")
        yield "an element less", seal(packet[:-4]), "bad_chunk"
        yield "a byte less", seal(packet[:-1]), (
            "bad_chunk" if kind == wire.PIECE else "malformed")
        return
    body = len(packet) - HEADER if kind == wire.TILE_PULL else wire.BODY.get(
        kind, wire.CALL if kind == wire.ACK else 0)
    if body:
        yield "no payload", seal(packet[:HEADER]), "short"
        yield "a byte less", seal(packet[:HEADER + body - 1]), "short"
    if kind not in (wire.HELLO, wire.HELLO_ACK):
        yield "a byte more", seal(packet + b"\0"), "malformed"


def fields(packet, kind):
    for name, values, reason in VALUES.get(kind, ()):
        for value in values:
            yield f"{name} {value:#x}", changed(packet, FIELDS[kind][name], value), reason


def acknowledgement(packet, posted, sent):
    """What only an acknowledgement has: ranges, and a call. @param packet without either; posted:
    of its sender; sent: a number that the receiver has sent."""
    def of(*ranges):
        with_ranges = packet + b"".join(number.to_bytes(8, "big") for pair in ranges
                                        for number in pair)
        return changed(with_ranges, FIELDS[wire.ACK]["range_count"], len(ranges))

    for what, ranges in (
            ("a range that ends before it begins", [(sent, sent - 1)]),
            ("ranges that ascend", [(1, 1), (sent, sent)]),
            ("ranges that touch", [(3, 4), (1, 2)]), ("ranges that overlap", [(3, 5), (1, 3)]),
            ("the same range twice", [(1, 1), (1, 1)]),
            ("a number never sent", [(1 << 40, 1 << 40)]),
            ("numbers never sent", [(1, wire.NUMBER_MAX)]),
            ("65 ranges", [(200 - 2 * i, 200 - 2 * i) for i in range(65)])):
        yield what, of(*ranges), "malformed"
    places = FIELDS[wire.ACK]
    yield "a digest of nothing", changed(packet, places["called_digest"], 1), "malformed"
    yield "a call of nothing", changed(packet, (80, 6), 1), "malformed"
    said = bytearray(packet)
    put(said, places["called_seq"], posted)
    for what, place, values in (("collective and datatype", (92, 1), (0x08, 0x10, 0x60, 0xF0)),
                                ("redop", (93, 1), (9, 255)), ("root", (86, 2), (1, 65535)),
                                ("format", (94, 1), (3, 255)), ("its zero", (95, 1), (1, 0x80))):
        for value in values:
            yield f"called: {what} {value:#x}", changed(said, place, value), "malformed"


def abort_text(packet):
    yield "a detail without an end", changed(packet, (HEADER + 183, 1), 0x41), "malformed"


def of_kind(kind, packet, tokens):
    """(what, packet, reason) of everything that is wrong with this kind. @param packet a right one
    of it."""
    yield from header(packet, kind, tokens)
    yield from zeros(packet, kind)
    yield from lengths(packet, kind)
    yield from fields(packet, kind)
    if kind == wire.ABORT:
        yield from abort_text(packet)
    if kind in wire.TILES:
        yield from of_tiles(packet, kind)


def without_tiles(kind, packet, tokens):
    """As of_kind(), of tiles, to a receiver whose group has none; a right one, too."""
    yield "right", packet, "foreign"
    for what, wrong, reason in of_kind(kind, packet, tokens):
        yield what, wrong, reason if reason in BEFORE_FOREIGN and (
            reason != "short" or len(wrong) < HEADER) else "foreign"
