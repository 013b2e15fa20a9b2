# SPDX-License-Identifier: BSD-3-Clause
"""The bytes of every packet, as doc/protocol draws them. A field is (offset, size in bytes) in
the packet; what lies from byte 64 on is payload. decode() checks in the page's order and raises
Dropped with the page's reason."""

from .checksums import crc32c

VERSION, HEADER, CALL, RANGE = 2, 64, 32, 16
(HELLO, HELLO_ACK, DATA, PING, ACK, ABORT, BYE, BYE_ACK, CHECK, CONTRIBUTION, RECEIPT, INQUIRY,
 PIECE, OFFER, PULL, TILE_PIECE, TILE_CALL, TILE_PULL) = range(1, 19)
AGAIN = 1  # a flag of these
SEALED = {0x02: 1, 0x04: 2}  # a flag, and the mode of doc/security.md whose packets have it
REPEATED = (INQUIRY, OFFER, PULL, TILE_CALL, TILE_PULL)
CHUNKS = (DATA, CONTRIBUTION, PIECE, TILE_PIECE)
TILES = (TILE_PIECE, TILE_CALL, TILE_PULL)
ELICITING = (DATA, PING)
NUMBER_MAX = 1 << 62
LANES_MAX, RANKS_MAX = 16, 1024
ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, BARRIER = 0, 2, 3, 4, 5, 11
COLLECTIVES = (ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, BARRIER)
# Of a datatype: name and bytes.
DATATYPES = (("fp32", 4), ("fp64", 8), ("fp16", 2), ("bf16", 2), ("int8", 1), ("int32", 4),
             ("int64", 8), ("uint8", 1))
# Of a format: the datatypes that it is for.
FORMATS = (("same", tuple(name for name, _ in DATATYPES)), ("bf16", ("fp32",)),
           ("int8", ("fp32", "bf16")))
REDOPS = ("sum", "avg", "min", "max", "prod", "band", "bor", "bxor", "premul_sum")

COMMON = {"version": (0, 1), "type": (1, 1), "flags": (2, 1), "lane": (3, 1), "tag": (4, 4),
          "number": (8, 8), "from_rank": (46, 2), "header_crc": (48, 4), "payload_crc": (52, 4),
          "token": (56, 8)}
_CALL_OF_DATA = {"op_seq": (16, 8), "count": (24, 6), "hop": (30, 2), "chunk": (32, 4),
                 "call_tag": (36, 4), "collective_datatype": (40, 1), "redop": (41, 1),
                 "root": (42, 2)}
_HELLO = {"group_id": (64, 8), "epoch": (72, 4), "features": (76, 4), "incarnation": (80, 8),
          "digest": (88, 8), "payload_bytes": (96, 4), "reserved_36": (100, 4),
          "sender": (104, 2), "to_rank": (106, 2), "nranks": (108, 2), "lanes": (110, 2),
          "credit": (112, 8), "posted": (120, 8), "source": (128, 1), "heard_source": (129, 1),
          "members": (130, 2), "folding_ranks": (132, 2), "reserved_70": (134, 2)}
_BYE = {"completed": (64, 8), "digest": (72, 8), "posted_by_all": (80, 8)}
_RECEIPT = {"entered": (16, 8), "received": (24, 8), "chunks": (32, 8), "delay_us": (40, 2),
            "echo": (42, 4)}
_PIECE = {"stream": (16, 2), "sequence": (18, 6), "bytes": (24, 8), "chunk": (32, 4),
          "call_tag": (36, 4), "source": (40, 2), "destination": (42, 2), "call": (44, 1),
          "bits": (45, 1)}
_TILE = {("reserved_30" if name == "hop" else name): place
         for name, place in _CALL_OF_DATA.items()} | {"format_bits": (44, 1), "since": (45, 1)}
FIELDS = {
    HELLO: _HELLO,
    HELLO_ACK: _HELLO,
    DATA: {**_CALL_OF_DATA, "reserved_44": (44, 2)},
    PING: {"asked": (16, 8)},
    ACK: {"credit": (16, 8), "posted": (24, 8), "delay_ns": (32, 4), "ecn_ce": (36, 4),
          "range_count": (40, 1), "reserved_41": (41, 1), "onwards": (42, 2), "by_all": (44, 2),
          "called_seq": (64, 8), "called_digest": (72, 8), "called": (80, 16)},
    ABORT: {"code": (64, 1), "reserved_1": (65, 1), "culprit": (66, 2), "reporter": (68, 2),
            "reserved_6": (70, 2), "op_seq": (72, 8), "duration_ns": (80, 8)},
    BYE: _BYE,
    BYE_ACK: _BYE,
    CHECK: {"op_seq": (64, 8), "stalled_ns": (72, 8), "origin": (80, 2), "reserved_82": (82, 6)},
    CONTRIBUTION: {("received_below" if name == "hop" else name): place
                   for name, place in _CALL_OF_DATA.items()} | {"step": (44, 1), "since": (45, 1)},
    RECEIPT: _RECEIPT,
    INQUIRY: _RECEIPT,
    PIECE: _PIECE,
    OFFER: _PIECE,
    PULL: {"stream": (16, 2), "sequence": (18, 6), "wanted": (24, 8), "first": (32, 4),
           "echo": (36, 4), "source": (40, 2), "destination": (42, 2), "bits": (44, 1),
           "reserved_45": (45, 1)},
    TILE_PIECE: _TILE,
    TILE_CALL: {("echo" if name == "chunk" else name): place for name, place in _TILE.items()},
    TILE_PULL: {"op_seq": (16, 8), "first": (24, 4), "grant": (28, 4), "done": (32, 4),
                "echo": (36, 4), "over": (40, 2), "bits": (42, 1), "reserved_43": (43, 1),
                "reserved_44": (44, 2)},
}
# Bytes of payload that the fields take; what follows them in a hello is padding.
WANTED = 32  # of a tile pull with bit 2
BODY = {HELLO: 72, HELLO_ACK: 72, ABORT: 184, BYE: 24, BYE_ACK: 24, CHECK: 24}
ABORT_CODES = {"silence": 1, "mismatch": 2, "client died": 3, "client abort": 4,
               "daemon stopped": 5, "peer left": 6, "reduce failed": 7, "formation": 8,
               "protocol": 9, "stuck": 10}


class Dropped(Exception):
    """A packet that a receiver drops; the argument is the page's reason."""


class Packet:
    """A decoded packet: its fields by the names above as attributes, and payload."""

    def __init__(self, data):
        self.data = bytes(data)
        self.payload = self.data[HEADER:]
        self.read(COMMON)

    def read(self, fields):
        for name, (at, size) in fields.items():
            setattr(self, name, int.from_bytes(self.data[at:at + size], "big"))

    def ranges(self):
        """Of an acknowledgement: (first, last) of each."""
        at = HEADER + CALL
        return [(int.from_bytes(self.data[at + RANGE * i:at + RANGE * i + 8], "big"),
                 int.from_bytes(self.data[at + RANGE * i + 8:at + RANGE * (i + 1)], "big"))
                for i in range(self.range_count)]


def put(packet, place, value):
    """Writes an integer into a field of a bytearray."""
    at, size = place
    packet[at:at + size] = value.to_bytes(size, "big")


def seal(packet, payload_crc=None):
    """Makes both CRCs right, that of the payload the one that is given, if one is."""
    put(packet, COMMON["payload_crc"],
        (crc32c(packet[HEADER:]) if len(packet) > HEADER else 0)
        if payload_crc is None else payload_crc)
    return with_header_crc(packet)


def with_header_crc(packet):
    put(packet, COMMON["header_crc"], crc32c(packet[:48] + packet[52:HEADER]))
    return packet


def encode(kind, common, fields, payload=b"", payload_crc=None):
    """@param common lane, tag, number, from_rank, token and, if any, flags; fields: of this type,
    what is not named is zero. @return a sealed bytearray."""
    if kind == ACK:
        payload = bytes(CALL) + payload
    elif kind in BODY:
        payload = bytes(BODY[kind]) + payload if kind != ABORT else (
            bytes(24) + payload.ljust(160, b"\0"))
    packet = bytearray(HEADER) + payload
    for name, value in {"version": VERSION, "type": kind, **common}.items():
        put(packet, COMMON[name], value)
    for name, value in fields.items():
        put(packet, FIELDS[kind][name], value)
    return seal(packet, payload_crc)


def _require(condition, reason="malformed"):
    if not condition:
        raise Dropped(reason)


def decode(data, known):
    """@param known a function that is given the packet so far, after its type was checked, and
    raises Dropped for an unknown group, a foreign sender or a wrong token. If the packet is sealed
    it opens it, and returns the bytes without the tag."""
    _require(len(data) >= HEADER, "short")
    packet = Packet(data)
    _require(packet.version == VERSION, "version")
    _require(packet.header_crc == crc32c(data[:48] + data[52:HEADER]), "header_crc")
    _require(packet.type in FIELDS, "type")
    opened = known(packet)
    flags = packet.flags
    if opened is not None:
        data, packet, flags = opened, Packet(opened), flags & ~sum(SEALED)
    _require(flags in ((0, AGAIN) if packet.type in REPEATED else (0,)))
    _require(packet.lane < LANES_MAX and 1 <= packet.number <= NUMBER_MAX)
    fields = FIELDS[packet.type]
    used = {at + i for at, size in fields.values() for i in range(size)}
    _require(not any(data[at] for at in range(16, 46) if at not in used))
    if packet.type not in CHUNKS:
        _require(packet.payload_crc == (crc32c(packet.payload) if packet.payload else 0),
                 "payload_crc")
    _check_length(packet)
    packet.read(fields)
    _require(not any(getattr(packet, name) for name in fields if name.startswith("reserved")))
    _CHECKS.get(packet.type, lambda packet: None)(packet)
    return packet


def _check_length(packet):
    if packet.type in CHUNKS:
        _require(len(packet.payload) >= 1, "short")
        return
    if packet.type == ACK:
        size = CALL + RANGE * packet.data[FIELDS[ACK]["range_count"][0]]
    elif packet.type == TILE_PULL:
        size = WANTED if packet.data[FIELDS[TILE_PULL]["bits"][0]] & 4 else 0
    else:
        size = BODY.get(packet.type, 0)
    _require(len(packet.payload) >= size, "short")
    _require(len(packet.payload) == size or packet.type in (HELLO, HELLO_ACK))


def _check_hello(packet):
    ranks = (packet.sender, packet.to_rank)
    _require(2 <= packet.nranks <= RANKS_MAX and ranks[0] != ranks[1])
    _require(max(ranks) < packet.nranks and packet.sender == packet.from_rank)
    _require(1 <= packet.lanes <= LANES_MAX and packet.payload_bytes > 0)
    _require(packet.source <= 32 and packet.heard_source <= 32)


def check_call(packet):
    """Of data, contributions and what an acknowledgement says was called."""
    packet.collective, packet.datatype = divmod(packet.collective_datatype, 16)
    _require(packet.collective in COLLECTIVES and packet.datatype < len(DATATYPES))
    _require(packet.redop < len(REDOPS))
    _require((packet.root > 0) == (packet.collective in (REDUCE, BROADCAST)))


def _check_chunk(packet):
    check_call(packet)
    width = DATATYPES[packet.datatype][1]
    _require(packet.op_seq >= 1 and len(packet.payload) % width == 0)
    _require(len(packet.payload) >= width, "short")
    if packet.type == CONTRIBUTION:
        _require(packet.received_below <= packet.op_seq)
        _require(packet.step <= 10 and packet.since <= packet.op_seq)
    else:
        _require(packet.hop < 2 * (RANKS_MAX - 1))
        _require(len(packet.payload) // width <= packet.count)


def _check_ack(packet):
    _require(packet.range_count <= 64)
    previous = None
    for first, last in packet.ranges():
        _require(1 <= first <= last and (previous is None or last + 1 < previous))
        previous = first
    for below in (packet.onwards, packet.by_all):
        _require(below <= packet.posted)
    _require(packet.called_seq <= packet.posted)
    _require(packet.called_seq > 0 or not any(packet.payload[:CALL]))


def _check_abort(packet):
    _require(packet.code in ABORT_CODES.values() and packet.data[-1] == 0)
    packet.detail = packet.data[HEADER + 24:].rstrip(b"\0").decode()


def _check_bye(packet):
    _require(packet.posted_by_all <= packet.completed)


def _check_progress(packet):
    _require(packet.op_seq >= 1)


def _check_receipt(packet):
    _require(packet.received <= packet.entered)


def _check_piece(packet):
    _require(packet.source != packet.destination)
    if packet.type == PULL:
        _require(packet.bits < 4)
        return
    _require(packet.bytes <= 1 << 48 and packet.call < 4)
    if packet.type == PIECE:
        _require(packet.sequence >= 1 and packet.bits == 0)
        _require(len(packet.payload) <= packet.bytes)
    else:
        _require(packet.bits < 4 and packet.chunk == 0)


def _check_tile(packet):
    check_call(packet)
    packet.format, packet.bits = divmod(packet.format_bits, 16)
    _require(packet.op_seq >= 1 and packet.format < len(FORMATS))
    name, width = DATATYPES[packet.datatype]
    _require(name in FORMATS[packet.format][1])
    if packet.format:
        _require(packet.collective in (ALL_REDUCE, REDUCE, REDUCE_SCATTER))
        _require(REDOPS[packet.redop] in ("sum", "avg"))
    if packet.type == TILE_CALL:
        _require(packet.bits in (0, 1, 4) and packet.since <= packet.op_seq)
        # What has not entered has no call: only op_seq and echo, and its bit.
        _require(packet.bits != 4 or not (any(packet.data[24:32]) or any(packet.data[36:44])
                                          or packet.format or packet.since))
        return
    _require(packet.bits in (0, 2) and packet.since == 0)
    if not packet.format:
        _require(len(packet.payload) >= width, "short")
        _require(len(packet.payload) % width == 0)
        _require(len(packet.payload) // width <= packet.count)


def _check_tile_pull(packet):
    _require(packet.op_seq >= 1 and packet.over <= packet.op_seq and packet.bits < 16)
    _require(packet.first <= packet.grant <= packet.first + 256)
    results, everything = packet.bits & 2, packet.bits & 8
    _require(not results or packet.done == packet.over == 0)
    _require(not everything or (results and packet.first == packet.grant == 0))
    words = [int.from_bytes(packet.payload[at:at + 8], "big")
             for at in range(0, len(packet.payload), 8)]
    packet.wanted = [64 * w + bit for w, word in enumerate(words) for bit in range(64)
                     if word >> bit & 1]
    if words:
        _require(packet.wanted and packet.first + packet.wanted[-1] < packet.grant)


_CHECKS = {HELLO: _check_hello, HELLO_ACK: _check_hello, DATA: _check_chunk,
           CONTRIBUTION: _check_chunk, ACK: _check_ack, ABORT: _check_abort, BYE: _check_bye,
           BYE_ACK: _check_bye, CHECK: _check_progress, RECEIPT: _check_receipt,
           INQUIRY: _check_receipt, PIECE: _check_piece, OFFER: _check_piece, PULL: _check_piece,
           TILE_PIECE: _check_tile, TILE_CALL: _check_tile, TILE_PULL: _check_tile_pull}
