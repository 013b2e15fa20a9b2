#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""peer_lies.py DEVICE SOCKET SOCKET: the peer of test/peer, at DEVICE, sends daemon 0 packets whose
bytes are right and whose words are not: they end the group, by the name that doc/protocol gives,
or are dropped because they come the wrong way."""

import sys

import numpy as np

from peer import table, wire
from peer.net import require
from peer.ops import Call
from peer.story import Stage

CODES = {number: name for name, number in wire.ABORT_CODES.items()}
RING = Call(wire.ALL_REDUCE, "fp32", 20_000, tag=5)
SMALL = Call(wire.ALL_REDUCE, "fp32", 3000, tag=5)
# Of a field that says what is called: another value, and what the error says.
OTHER_CALLS = (("count", 20_001, "20001 fp32"), ("call_tag", 6, "tag 6"),
               ("collective_datatype", 0x05, "int32"), ("redop", 3, "max"),
               ("collective_datatype", 0x40, "all-gather"))
TRANSFER = {"sequence": 1, "bytes": 5000, "call_tag": 3, "source": 0, "destination": 1}


def send(group, kind, fields, payload=b""):
    group.lanes[0].down.send(kind, fields, payload)


def ends(stage, meeting, what, code, *texts):
    """The group ends, for both."""
    peer = meeting.groups[0]
    stage.network.run_until(lambda: peer.reason, f"{what} ends the group")
    got = CODES[peer.reason["code"]]
    require(got == code, f"{what} ends it by {code}, not {got}: {peer.reason}")
    error, = meeting.client_errors()
    require(all(text in error for text in texts), f"{what}: {texts} in: {error}")
    meeting.close()


def forming(stage, peer):
    """What differs in hellos."""
    for lies, text in (({"digest": 1}, "table"), ({"payload_bytes": 1344}, "payload 1344"),
                       ({"nranks": 3}, "ranks 3"), ({"lanes": 2}, "lanes 2"),
                       ({"members": 2, "digest": 1}, "members"),
                       ({"folding_ranks": 1, "digest": 1}, "without members")):
        meeting = stage.meet(peer, stage.clients[0], lies=lies)
        group = meeting.groups[0]
        stage.network.run_until(lambda group=group: group.reason, f"a hello of {lies} is refused")
        require(CODES[group.reason["code"]] == "formation", f"{lies}: {group.reason}")
        require(text in meeting.errors[0], f"{lies}: {text} in {meeting.errors}")
        meeting.close()
    # What nobody looks at, or the digest has.
    for lies in {"features": 0xFFFFFFFF}, {"members": 2}:
        meeting = stage.meet(peer, stage.clients[0], lies=lies)
        require(not meeting.errors, f"{lies} is no fault: {meeting.errors}")
        meeting.leave()


def calls(stage, peer):
    """What differs in data, contributions and transfers."""
    for name, value, text in OTHER_CALLS:
        for kind, call in ((wire.DATA, RING), (wire.CONTRIBUTION, SMALL)):
            meeting = stage.meet(peer, stage.clients[0])
            works = []
            meeting.post_client(call, meeting.make_inputs(call), 1, works)
            group = meeting.groups[0]
            stage.network.run_until(lambda group=group: group.lanes[0].down.posted == 1,
                                    "the daemon says that it has posted")
            send(group, kind, {**call.fields(), "op_seq": 1, name: value}, bytes(1408))
            ends(stage, meeting, f"other {name} of type {kind}", "mismatch", text)
    for kind, payload in ((wire.PIECE, bytes(1408)), (wire.OFFER, b"")):
        for name, value, text in (("bytes", 5001, "5001 bytes"), ("call_tag", 4, "tag 4"),
                                  ("call", 1, "all-to-all")):
            meeting = stage.meet(peer, stage.clients[0])
            work = meeting.groups[1].recv(np.zeros(5000, "u1"), 0, tag=3)
            send(meeting.groups[0], kind, {**TRANSFER, name: value}, payload)
            ends(stage, meeting, f"other {name} of type {kind}", "mismatch", text)
            del work


def words(stage, peer):
    """An acknowledgement, or a bye, that says what was not called; a bye that claims an op which is
    not done."""
    said = {"posted": 1, "called_seq": 1, "called_digest": 1,
            "called": int.from_bytes(SMALL.called(), "big")}
    for kind, done, posted, fields, code, text in (
            (wire.ACK, 0, 1, said, "mismatch", "3000 fp32"),
            (wire.BYE, 1, 0, {"completed": 1, "digest": 1}, "mismatch", "called"),
            (wire.BYE, 1, 1, {"completed": 2, "digest": 1}, "mismatch", "called"),
            (wire.BYE, 0, 1, {"completed": 1, "digest": table.call_digest(0, 1, RING.called())},
             "peer left", "left")):
        meeting = stage.meet(peer, stage.clients[0])
        works = []
        for _ in range(done):
            meeting.check(RING)
        for _ in range(posted):
            meeting.post_client(RING, meeting.make_inputs(RING), 1, works)
        send(meeting.groups[0], kind, fields)
        ends(stage, meeting, f"type {kind} with {fields}", code, text)


def wrong_way(stage, peer):
    """Of three ranks the next one must not send what goes down, nor the one before what goes up."""
    last = stage.peer()
    meeting = stage.meet(peer, stage.clients[0], last)
    meeting.check(RING)
    before, after = meeting.groups[0].lanes[0].down, meeting.groups[2].lanes[0].up
    for link, kinds in ((before, (wire.HELLO_ACK, wire.ACK)),
                        (after, (wire.HELLO, wire.DATA, wire.PING, wire.CHECK))):
        for kind in kinds:
            payload, fields = b"", {}
            if kind in (wire.HELLO, wire.HELLO_ACK):
                fields, payload = link.lane.greeting(1), bytes(1336)
            elif kind == wire.DATA:
                fields, payload = {**RING.fields(), "op_seq": 1}, bytes(1408)
            elif kind == wire.CHECK:
                fields = {"op_seq": 1}
            count = stage.drops()["state"]
            link.send(kind, fields, payload)
            link.waiting.clear()
            stage.network.run_until(lambda count=count: stage.drops()["state"] == count + 1,
                                    f"type {kind} the wrong way is dropped as state")
    meeting.check(RING)
    meeting.leave()


def main():
    stage = Stage(sys.argv[1], sys.argv[2:])
    peer = stage.peer(direct_kib=64, two_step_kib=16)
    for part in (forming, calls, words, wrong_way):
        part(stage, peer)
        print(part.__name__, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
