#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""peer_sealed.py DEVICE SOCKET SOCKET: the peer of test/peer, at DEVICE, and two daemons form
groups whose packets are sealed: $GRADWIRE_SECURITY says how, $PEER_KEY_FILE by which key. They do
every op in every shape and transfers, lose packets, see generations of keys end, and end by leaving
and by aborts. Ranks that want different things meet by the highest, and those that cannot are
refused on both sides."""

import collections
import re
import sys
import threading

import gradwire
import numpy as np

from peer import security, table, wire
from peer.net import require
from peer.ops import Call
from peer.sealing import MODES
from peer.story import Stage
from peer_faults import told
from peer_groups import every_collective, one_transfer

ALL = wire.ALL_REDUCE
# Reasons for which a daemon drops what is right: it is of a group that is over, or comes twice.
HARMLESS = ("foreign", "unknown_group", "duplicate", "state")
# Of keys. From the third on the daemon makes them while the group runs.
GENERATIONS = 4
NEXT_KEY, JOB_KEY = bytes(range(1, 33)), bytes(range(0, 64, 2))


def groups(stage):
    """Two to four ranks: exchanges, the ring, direct ops, owners, gathered ones, transfers, also of
    groups that have nothing else."""
    a, b = stage.clients
    p, q = stage.peer(), stage.peer()
    r = stage.peer(direct_kib=64, two_step_kib=16)
    g = stage.peer(direct_kib=64, two_step_kib=16, gathered_ranks=2)
    before = [stage.drops(daemon) for daemon in range(2)]
    every = ((p, a), (a, p), (p, a, q), (p, a, q, b), (r, a), (r, a, p), (g, a, b))
    for members, alone in [(some, False) for some in every] + [((p, a), True), ((a, p), True)]:
        meeting = stage.meet(*members, alone=alone)
        require(all(group.keys.mode == MODES[stage.mode] and group.payload_bytes == 1344
                    for group in meeting.peers()), "the table's mode and payload")
        if not alone:
            every_collective(meeting, (1, 1023), ("fp32",))
            meeting.check(Call(ALL, "bf16", 30_011))
        here = members.index(a)
        for rank, peer in enumerate(meeting.groups):
            if members[rank] is not p:
                continue
            for size in (0, 1345, 30_001):
                sent = np.arange(size, dtype="u4").astype("u1")
                one_transfer(stage, size, peer.transfers.send(here, sent.tobytes(), tag=3),
                             meeting.groups[here].recv, rank, sent)
                one_transfer(stage, size, peer.transfers.receive(here, size, tag=4),
                             meeting.groups[here].send, rank, sent)
        meeting.leave()
    missing = set(wire.FIELDS) - {wire.CHECK, wire.ABORT, wire.INQUIRY, *wire.TILES} - stage.kinds
    require(not missing, f"daemons sent packets of all types, also of {missing}")
    for daemon in range(2):
        found = {name: n - before[daemon][name] for name, n in stage.drops(daemon).items()
                 if n > before[daemon][name] and name not in HARMLESS}
        require(not found, f"daemon {daemon} drops nothing that the peer sends: {found}")


def loss(stage):
    """What is lost is sent again, sealed anew."""
    p, a = stage.peers[0], stage.clients[0]
    meeting = stage.meet(p, a)
    group, = meeting.peers()
    group.lose_in, group.lose_out = 7, 5
    for count in (1, 1023, 30_011):
        meeting.check(Call(ALL, "fp32", count))
    group.lose_in = group.lose_out = 0
    meeting.leave()
    require(group.lanes[0].counts["sent_again"], "the peer sent again what was lost")


def generations(stage):
    """The peer's row of numbers jumps to the end of a generation of keys, and goes on in the next:
    the daemon derives its keys. (Four million packets of the daemon's would be too many here.)"""
    p, a = stage.peers[0], stage.clients[0]
    meeting = stage.meet(p, a)
    link = meeting.groups[0].lanes[0].down
    for end in range(1, GENERATIONS):
        require(link.next_number < end * security.GENERATION - 3, "the row of numbers only rises")
        link.next_number = end * security.GENERATION - 3
        meeting.check(Call(ALL, "fp32", 5003))
        require(link.next_number > end * security.GENERATION, f"generation {end} has begun")
    before = stage.drops()["generation"]
    far = wire.encode(wire.PING, {
        "lane": 0, "tag": meeting.groups[0].tag, "number": 9 * security.GENERATION,
        "from_rank": 0, "token": link.token_out}, {})
    stage.network.send(p.address, "10.78.0.1", 18515, 18515, bytes(link.sealed(far)))
    stage.network.run_until(lambda: stage.drops()["generation"] > before,
                            "a number far ahead is refused, even if its key is right")
    meeting.check(Call(ALL, "fp32", 100))
    meeting.leave()


def aborts(stage):
    p, a = stage.peers[0], stage.clients[0]
    for members in ((p, a), (a, p)):
        here, there = members.index(a), members.index(p)
        meeting = stage.meet(*members)
        meeting.check(Call(ALL, "fp32", 100))
        meeting.groups[here].abort("the client has enough")
        told(stage, meeting, "client abort", here, "the client has enough")
        meeting = stage.meet(*members)
        meeting.groups[there].abort("client abort", detail="the peer has enough")
        told(stage, meeting, "client abort", there, "the peer has enough")


def wants(stage):
    """The highest mode that any entry wants; keys in another order; a key of the job."""
    a = stage.clients[0]
    low = stage.peer(keys=stage.keys("off"))
    high = stage.peer(keys=stage.keys("encrypt"))
    for members, want, mode in (((low, a), stage.mode, stage.mode), ((a, low), "off", "off"),
                                ((high, a), "off", "encrypt"),
                                ((a, high), "authenticate", "encrypt")):
        meeting = stage.meet(*members, wants={"security": want})
        for group in meeting.peers():
            got = group.keys.mode if group.keys else security.OFF
            require(got == MODES[mode], f"the mode is {mode}, not {got}")
        meeting.check(Call(ALL, "fp32", 5003))
        meeting.leave()
    for files, first in (([stage.key, NEXT_KEY], 0), ([NEXT_KEY, stage.key], 1)):
        member = stage.peer(keys=stage.keys(files=files))
        meeting = stage.meet(member, a)
        chosen = meeting.groups[0].keys.file.id
        require(chosen == security.FileKeys(files[first]).id, "the first that all have")
        meeting.check(Call(ALL, "fp32", 100))
        meeting.leave()
    member = stage.peer(keys=stage.keys(job=JOB_KEY))
    meeting = stage.meet(a, member, wants={"security": stage.mode, "job_key": JOB_KEY})
    meeting.check(Call(ALL, "fp32", 5003))
    meeting.leave()


def refused(stage, what, peer, texts, refusals, **wants):
    """Both say why no group forms. @param refusals what the peer says, None: it takes the table."""
    meeting = stage.meet(stage.clients[0], peer, wants=wants or {"security": stage.mode},
                         refused=True)
    error, = meeting.errors
    require(all(text in error for text in texts), f"{what}: {texts} in: {error}")
    if refusals is None:
        require(not meeting.refusals, f"{what}: {meeting.refusals}")
        meeting.close()
    else:
        refusal, = meeting.refusals
        require(refusals in refusal, f"{what}: {refusals} in: {refusal}")


def refusals(stage):
    ids = [security.FileKeys(key).id.hex() for key in (stage.key, NEXT_KEY)]
    refused(stage, "a rank without a key", stage.peer(keys=None),
            ("rank 1 has no key, and rank 0 wants " + stage.mode,), "rank 1 has no key")
    refused(stage, "another key", stage.peer(keys=stage.keys(files=[NEXT_KEY])),
            ("rank 0", "rank 1", *ids), "no key in common")
    refused(stage, "another key of the job", stage.peer(keys=stage.keys(job=NEXT_KEY)),
            (security.FileKeys(NEXT_KEY).id.hex(), "job"), "key of the job",
            security=stage.mode, job_key=JOB_KEY)
    refused(stage, "a job's key on one side", stage.peer(keys=stage.keys(job=NEXT_KEY)),
            ("rank 1", "job"), "key of the job")
    peer = stage.peer()
    for what, at in (("address", 43), ("payload", 377), ("public key", 300), ("user", 284)):
        entry = bytearray(peer.entry)
        entry[at] ^= 4
        peer.entry = table.with_checksum(entry)
        refused(stage, f"a changed {what}", peer,
                ("the entry of rank 1 does not fit key " + ids[0],), "does not fit")
        entry[at] ^= 4
        peer.entry = table.with_checksum(entry)
    other = stage.keys()
    other.user += 1000
    refused(stage, "made for another user", stage.peer(keys=other),
            ("rank 1", "user", str(other.user)), "user")
    for what, public in (("zeros", bytes(32)), ("of low order", bytes([1]) + bytes(31)),
                         ("rank 0's own", table.Entry(
                             stage.clients[0].describe(security=stage.mode)).public_key)):
        keys = stage.keys()
        keys.public = public
        refused(stage, f"a public key that is {what}", stage.peer(keys=keys),
                ("public key",), "public_key" if "own" in what else None)


def unsealed(stage):
    """A rank takes the group to have another mode: the error says what it sends."""
    a, peer = stage.clients[0], stage.peer()
    infos = [a.describe(), peer.entry]
    for mode in ("off", "authenticate" if stage.mode == "encrypt" else "encrypt"):
        errors = []
        group_id = 0x5EA1 << 32 | MODES[stage.mode] << 8 | MODES[mode]

        def join(group_id=group_id, errors=errors):
            try:
                a.join(group_id, 1, 0, infos, timeout=3)
            except gradwire.GradwireError as error:
                errors.append(str(error))

        thread = threading.Thread(target=join)
        thread.start()
        hello = wire.encode(
            wire.HELLO, {"lane": 0, "tag": table.group_tag(group_id, 1), "number": 1,
                         "from_rank": 1, "token": 7, "flags": security.FLAGS.get(MODES[mode], 0)},
            {"group_id": group_id, "epoch": 1, "incarnation": 1, "sender": 1, "to_rank": 0,
             "nranks": 2, "lanes": 1, "payload_bytes": 1344, "members": 1}, bytes(1272))
        before = stage.drops()["unsealed"]
        peer.drops = collections.Counter()
        while thread.is_alive():
            stage.network.send(peer.address, "10.78.0.1", 18515, 18515, bytes(hello))
            stage.network.poll(0.02)
        require(stage.drops()["unsealed"] > before, "they are counted")
        require(errors and re.search("rank 1 .*sends packets that are not sealed", errors[0]),
                f"the error says so: {errors}")


def main():
    stage = Stage(sys.argv[1], sys.argv[2:])
    for part in (groups, loss, generations, aborts, wants, refusals, unsealed):
        part(stage)
        print(part.__name__, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
