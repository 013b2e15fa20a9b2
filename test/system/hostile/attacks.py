#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""attacks.py --mode MODE DEVICE DEVICE SOCKET SOCKET: a group of two daemons whose packets are
sealed, and somebody who holds the cable between them (path.py) and has no key. All that he tries is
dropped and counted by its reason, nothing of it takes effect, and the group's sums are right."""

import argparse
import os
import pickle
import threading

import ring as rings
from attack_scene import (ABORT, ACK, BATCH, BY_HELLO_KEY, CONTRIBUTION, DATA, FLAGS, GENERATION,
                          HELLO, HELLO_ACK, KINDS, OFFER, PIECE, PING, PULL, RECEIPT, TAG,
                          TILE_CALL, TILE_PIECE, TILE_PULL, Scene, require)
from attacks_live import live, silence
from forged import HEADER, TOKEN
from path import (FROM_RANK, NUMBER, PAYLOAD_CRC, Path, flipped, framed, number_of, packet_of, put)
from reference import reference


def types(scene):
    """Every type, right in every field that is in clear: the tag decides."""
    for kind in KINDS:
        reason = "foreign" if kind >= TILE_PIECE and not scene.tiles else "tag"
        scene.both(f"a forged packet of type {kind}", reason,
                   lambda d, kind=kind: [scene.forged(d, kind) for _ in range(3)])
    scene.both("types that there are not", "type",
               lambda d: [scene.forged(d, kind) for kind in (0, 19, 255)])
    scene.goes_on("types")


def unsealed(scene):
    """As a daemon without keys sends them, or of the other mode, or of both."""
    for flags in (0, 1, 6 - scene.flag, 6):
        for kind in KINDS[:15]:
            scene.both(f"type {kind} with flags {flags}", "unsealed", lambda d, kind=kind,
                       flags=flags: [scene.forged(d, kind, flags=flags, tag=0)])
    scene.goes_on("unsealed")


def ahead(scene):
    """Numbers that no packet can have yet."""
    for kind in (HELLO, ABORT, PING, DATA, CONTRIBUTION):
        for number in (0, GENERATION + 5, 2 * GENERATION, 9 * GENERATION, 1 << 40, 1 << 62,
                       (1 << 62) + 1, (1 << 64) - 1):
            reason = "tag"
            if kind not in BY_HELLO_KEY and number >= 2 * GENERATION:
                reason = "generation"
            scene.both(f"type {kind} of number {number:#x}", reason,
                       lambda d, kind=kind, number=number: [
                           put(scene.forged(d, kind), NUMBER, number.to_bytes(8, "big"))])
    scene.goes_on("far ahead")


def replays(scene):
    """Everything that was sent, again: in its order, and backwards. What had been lost may be taken
    the first time, so the second one counts. On a slow machine so much is sent meanwhile that the
    first packets have left the window of numbers."""
    for direction in range(2):
        with scene.path.changed:
            packets = [packet_of(frame) for frame in scene.path.seen[direction]]
        for first in range(0, len(packets), BATCH):
            for packet in packets[first:first + BATCH]:
                scene.path.send(direction, framed(scene.sample(direction), packet))
            scene.settle(direction)
        for what, order in ("a replay", packets), ("a replay backwards", packets[::-1]):
            scene.expect(what, "duplicate", direction, order, also=("replay",))
    scene.goes_on("replays")


def reflections(scene):
    """Back to its sender: as it is, as of the other rank, and with the other link's token."""
    for direction in range(2):
        own = [packet_of(f) for f in scene.path.seen[direction][-40:]]
        sample = scene.sample(1 - direction)
        token = packet_of(sample)[TOKEN:TOKEN + 8]
        rank = packet_of(sample)[FROM_RANK:FROM_RANK + 2]
        scene.expect("a reflection", "foreign", 1 - direction, own)
        turned_ = [put(packet, FROM_RANK, rank) for packet in own]
        scene.expect("a reflection in the other's name", "token", 1 - direction, turned_)
        scene.expect("one with the other's token", "tag", 1 - direction,
                     [put(put(packet, TOKEN, token), NUMBER, scene.fresh(1 - direction))
                      for packet in turned_])
    scene.goes_on("reflections")


def tokens(scene):
    """Not the link's."""
    def make(direction):
        for kind in KINDS[:15]:
            packet = scene.forged(direction, kind)
            yield flipped(packet, TOKEN, 1)
            yield put(packet, TOKEN, bytes(8))
    scene.both("another token", "token", make)
    scene.goes_on("tokens")


def other_lanes(scene):
    """To the ports of other lanes."""
    for direction in range(2):
        packets = [packet_of(f) for f in scene.path.seen[direction][-20:]]
        sample = bytearray(scene.sample(direction))
        sample[37] += 1
        scene.expect("a packet at the port of a lane that is not there", "foreign", direction,
                     packets, bytes(sample))
        scene.expect("of another lane", "tag", direction,
                     [flipped(scene.forged(direction, kind), 3, 1) for kind in KINDS[:15]])
    scene.goes_on("lanes")


def held(scene, direction, kind, act):
    """act(packet) with a packet that has not come yet; then it comes, and is taken. A chunk is the
    first of an op that goes on."""
    inputs = scene.ring.make_inputs(scene.generator, 20_011, "fp32")
    outputs = [members[0].copy() for members in inputs]
    caught, works = scene.path.hold(direction, kind), []
    if kind in (DATA, TILE_PIECE):
        works = [groups[0].all_reduce(output, tag=1)
                 for groups, output in zip(scene.ring.groups, outputs)]
    scene.path.until(lambda: caught, f"a packet of type {kind} is sent")
    scene.path.change_by(None)
    act(packet_of(caught[0]))
    before = scene.drops(1 - direction)
    scene.path.send(direction, caught[0])
    scene.settle(direction)
    scene.expect("it again", "duplicate", direction, [packet_of(caught[0])])
    after = scene.drops(1 - direction)
    for name in "tag", "replay", "generation", "unsealed", "short", "malformed":
        require(after[name] == before[name], f"the real packet of type {kind} is taken, not {name}")
    for work in works:
        work.wait(60)
    if works:
        rings.check([[output] for output in outputs], reference.all_reduce(inputs, "fp32", "sum"),
                    "an op whose chunk was played with")


def flips_of(packet):
    """(reason, packet) of a bit in every field of the header, in the payload and in the tag."""
    for at in range(len(packet)):
        if HEADER + 8 < at < len(packet) - TAG - 4 and at % 61:
            continue
        if at == 15 or HEADER - 16 <= at < PAYLOAD_CRC:
            continue  # a number that was seen; the header's CRC itself
        reason = ("version" if at == 0 else "type" if at == 1 else "unknown_group" if 4 <= at < 8
                  else "generation" if 8 <= at < 13 else "foreign" if FROM_RANK <= at < 48
                  else "token" if TOKEN <= at < HEADER else "tag")
        yield reason, flipped(packet, at)
        if at < HEADER:
            yield "version" if at == 0 else "header_crc", flipped(packet, at, repaired=False)
    yield "tag", flipped(packet, 1, 1)
    yield "tag", flipped(packet, 2, 0x01)
    yield "tag", flipped(packet, 2, 0x80)
    yield "unsealed", flipped(packet, 2, 0x02)
    yield "unsealed", flipped(packet, 2, 0x04)
    for at in range(48, 52):
        yield "header_crc", flipped(packet, at, 1, repaired=False)


def cuts_of(packet):
    """(reason, packet): too short, a byte short, a byte more, without its tag."""
    for size in (1, 63, 64, 79):
        yield "short", packet[:size]
    for size in (80, 81, len(packet) - TAG, len(packet) - 1):
        if 80 <= size < len(packet):
            yield "tag", packet[:size]
    yield "tag", packet + b"\0"


def flips(scene):
    """Of a ping, an acknowledgement and a chunk that have not come yet."""
    for direction in range(2):
        for kind in (PING, ACK, TILE_PIECE if scene.tiles else DATA):
            def act(packet, direction=direction):
                cases = {}
                for reason, wrong in (*flips_of(packet), *cuts_of(packet)):
                    cases.setdefault(reason, []).append(wrong)
                for reason, packets in cases.items():
                    scene.expect(f"a changed packet of type {packet[1]}", reason, direction,
                                 packets)
            held(scene, direction, kind, act)
    scene.goes_on("bits and lengths")


def far_behind(scene):
    """What is older than the window: the same packets, after 8,192 others."""
    old = [packet_of(scene.path.seen[0][i]) for i in range(-20, 0)]
    scene.sum(3_000_003)
    numbers = number_of(packet_of(scene.path.newest(0))), max(map(number_of, old))
    require(numbers[0] - numbers[1] > 8192, f"enough packets were sent: {numbers}")
    scene.expect("an old packet", "replay", 0, old)
    scene.goes_on("older than the window")


def other_epochs(scene, before):
    """Packets of an epoch that is over: as they are, under this one's tag, and with its token."""
    for direction in range(2):
        packets = [packet_of(f) for f in before[direction]][-60:]
        here = packet_of(scene.sample(direction))
        scene.expect("a packet of the epoch before", "unknown_group", direction, packets)
        packets = [put(packet, 4, here[4:8]) for packet in packets]
        scene.expect("one under this epoch's tag", "token", direction, packets)
        scene.expect("one with its token, too", "tag", direction,
                     [put(put(packet, TOKEN, here[TOKEN:HEADER]), NUMBER, scene.fresh(direction))
                      for packet in packets])
    scene.goes_on("other epochs")


def forming(scene):
    """Rank 0 hears only the attacker, who sees what rank 1 says: no group forms until rank 1 is
    heard."""
    scene.path.change_by(lambda direction, frame: [] if direction == 1 else [frame])
    thread = threading.Thread(target=scene.form)
    thread.start()
    scene.path.until(lambda: all(scene.path.newest(d, HELLO) for d in range(2)), "both greet")
    sample = scene.path.newest(1, HELLO)
    hello = packet_of(sample)
    for _ in range(5):
        forged = [scene.forged(1, kind) for kind in BY_HELLO_KEY] + [
            flipped(hello, 1, HELLO ^ HELLO_ACK), flipped(hello, 1, HELLO ^ ABORT),
            *(flipped(hello, at) for at in (64, 72, 80, 88, 96, 112, len(hello) - 1))]
        scene.expect("a greeting without the key", "tag", 1, forged, sample)
        scene.expect("one that is not sealed", "unsealed", 1, [
            put(hello, 2, bytes(1)), put(hello, 2, bytes(1))[:-TAG]], sample)
    require(thread.is_alive(), "no group forms by forged greetings")
    scene.path.change_by(None)
    thread.join()
    require(scene.ring, "the group forms when rank 1 is heard")
    scene.goes_on("forming")
    scene.leave()


def without_keys(scene):
    """A group whose mode is off takes nothing that says to be sealed."""
    for flags in (2, 4, 6):
        for kind in KINDS[:15]:
            scene.both(f"type {kind} with flags {flags} in a group that is off", "unsealed",
                       lambda d, kind=kind, flags=flags: [scene.forged(d, kind, flags=flags)])
    scene.goes_on("a group that is off")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":", 1)[0])
    parser.add_argument("devices", nargs=2)
    parser.add_argument("sockets", nargs=2)
    parser.add_argument("--mode", choices=FLAGS, required=True)
    parser.add_argument("--tiles", action="store_true", help="large ops go by tiles")
    parser.add_argument("--epoch", type=int, default=1)
    parser.add_argument("--capture", help="leaves the session's frames in this file")
    parser.add_argument("--silence", action="store_true",
                        help="only keeps the daemons from hearing each other")
    parser.add_argument("--replay", help="only plays the frames of another session")
    arguments = parser.parse_args()
    os.environ["GRADWIRE_SECURITY"] = arguments.mode
    path = Path(arguments.devices)

    def scene_of(epoch):
        return Scene(path, arguments.sockets, arguments.mode, epoch, arguments.tiles)

    if not (arguments.replay or arguments.silence):
        forming(scene_of(arguments.epoch))
    scene = scene_of(arguments.epoch + 1).form()
    scene.sum()
    scene.move()
    if arguments.silence:
        silence(scene)
        scene.ring.__exit__()
        return 0
    if arguments.replay:
        with open(arguments.replay, "rb") as file:
            other_epochs(scene, pickle.load(file))
        scene.leave()
        return 0
    for part in (types, unsealed, ahead, tokens, reflections, other_lanes, flips, live, replays):
        part(scene)
    usual = {PING, ACK, PIECE, OFFER, PULL}
    usual |= {CONTRIBUTION, RECEIPT, TILE_PIECE, TILE_CALL, TILE_PULL} if arguments.tiles else {
        HELLO, HELLO_ACK, DATA}
    missing = usual - set().union(*path.kinds())
    require(not missing, f"packets of all types were played with, also of {missing}")
    before = [frames[-500:] for frames in path.seen]
    far_behind(scene)
    scene.leave()
    if arguments.capture:
        with open(arguments.capture, "wb") as file:
            pickle.dump(before, file)
    scene = scene_of(arguments.epoch + 2).form()
    scene.sum()
    other_epochs(scene, before)
    scene.leave()
    arguments.mode = os.environ["GRADWIRE_SECURITY"] = "off"
    scene = scene_of(arguments.epoch).form()
    scene.sum()
    without_keys(scene)
    scene.leave()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
