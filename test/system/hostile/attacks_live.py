# SPDX-License-Identifier: BSD-3-Clause
"""Attacks while ops are under way: each real packet has forged companions, is changed on its way,
comes late or twice. In-place ops: the output into which a forged result would go is an input,
too."""

import time

from attack_scene import MARKERS, TAG, crc_of, require
from forged import HEADER, TOKEN, UDP_PAYLOAD
from path import FROM_RANK, PAYLOAD_CRC, framed, packet_of, with_crc




def changed(packet, mode):
    """Another payload, or other words; the CRCs are right if the attacker can make them so."""
    packet, at = bytearray(packet), HEADER if len(packet) > HEADER + TAG else 16
    for i in range(at, at + 16):
        packet[i] ^= 0xFF
    if mode == "authenticate":
        packet[PAYLOAD_CRC:TOKEN] = crc_of(packet[HEADER:-TAG])
    return with_crc(packet)


def rose(scene, before):
    total = {}
    for daemon in range(2):
        for name, count in scene.drops(daemon).items():
            if count != before[daemon][name]:
                total[name] = total.get(name, 0) + count - before[daemon][name]
    return total


def run(scene, what, change, reasons, counts=(1, 1003, 40_009)):
    """Sums, in their place, and a transfer, while change(direction, frame) says what goes on.
    @return how often each reason was counted: of these only, but for what comes twice."""
    before = [scene.drops(daemon) for daemon in range(2)]
    scene.path.change_by(change)
    for count in counts:
        scene.sum(count)
    scene.move()
    scene.path.change_by(None)
    for direction in range(2):
        scene.settle(direction)
    found = rose(scene, before)
    for name in MARKERS:
        found.pop(name, None)
    others = set(found) - set(reasons) - {"duplicate"}
    require(not others, f"{what}: only {reasons} are counted, not {found}")
    require(all(found.get(reason) for reason in reasons), f"{what}: all of {reasons} in {found}")
    print(what, found, flush=True)


def live(scene):
    def twins(_, frame):
        """A forged one before each, under its number: the real one has to be taken after it."""
        return [framed(frame, changed(packet_of(frame), scene.mode)), frame]

    run(scene, "a forged packet before each real one", twins, ("tag",))
    went = [0]

    def some_changed(_, frame):
        """Each fifth comes changed alone."""
        went[0] += 1
        return [framed(frame, changed(packet_of(frame), scene.mode)) if went[0] % 5 == 0 else frame]

    run(scene, "each fifth packet changed on its way", some_changed, ("tag",))
    run(scene, "each packet twice", lambda _, frame: [frame, frame], ("duplicate",))
    waiting = [[], []]

    def backwards(direction, frame):
        """Four at a time, the last first; what is no chunk goes at once."""
        waiting[direction].append(frame)
        if len(waiting[direction]) < 4 and frame[UDP_PAYLOAD + 1] in (3, 10, 13):
            return []
        frames, waiting[direction] = waiting[direction][::-1], []
        return frames

    run(scene, "packets in another order", backwards, ())
    for direction, frames in enumerate(waiting):
        for frame in frames:
            scene.path.send(direction, frame)

    def as_the_other(direction, frame):
        """A copy goes back to its sender in the other rank's name, under the other's token."""
        sample = scene.path.seen[1 - direction][-1:]
        if sample:
            packet = bytearray(packet_of(frame))
            other = packet_of(sample[0])
            packet[FROM_RANK:FROM_RANK + 2] = other[FROM_RANK:FROM_RANK + 2]
            packet[TOKEN:HEADER] = other[TOKEN:HEADER]
            packet[8:16] = (int.from_bytes(other[8:16], "big") + 500).to_bytes(8, "big")
            scene.path.send(1 - direction, framed(sample[0], with_crc(packet)))
        return [frame]

    run(scene, "each packet back to its sender, too", as_the_other, ("tag",))

    def flood(direction, frame):
        """Three greetings without the key for each packet."""
        for kind in (1, 2, 6):
            scene.path.send(direction, framed(frame, greetings[direction][kind]))
        return [frame]

    greetings = [{kind: scene.forged(d, kind) for kind in (1, 2, 6)} for d in range(2)]
    run(scene, "greetings without the key all the time", flood, ("tag",))
    scene.goes_on("live")


def silence(scene):
    """Nothing of either rank arrives any more. What was sent before, and what is forged in their
    names, keeps nobody alive."""
    scene.path.change_by(lambda direction, frame: [])
    old = [[packet_of(frame) for frame in seen[-200:]] for seen in scene.path.seen]
    told, tries = [None, None], 0
    while None in told:
        scene.path.require_well()
        for direction in range(2):
            tries += 1
            for packet in (old[direction][tries % len(old[direction])],
                           scene.forged(direction, 4), scene.forged(direction, 5)):
                scene.path.send(direction, framed(scene.sample(direction), packet))
            told[direction] = told[direction] or scene.error_of(direction)
        time.sleep(0.005)
    require(all("silen" in error for error in told), f"both ranks are told of silence: {told}")
    scene.path.change_by(None)
    print("silence", flush=True)
