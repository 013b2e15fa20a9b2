# SPDX-License-Identifier: BSD-3-Clause
"""Sends and receives of pairs of processes: sizes that the sender alone knows, and several orders
of one pair. A part of transfers.py."""

import numpy as np

import gradwire
from told import same, told, wait


def receives_up_to(stand, part, generator):
    """Receives with more room than is sent, or as much: the size is told, and what is behind it
    stays. Plain ones before and behind them, in one order."""
    count = 0
    pairs = [(p, q) for p in range(stand.count) for q in range(stand.count)]
    payload = stand.payload
    for send_first in (True, False):
        for size, room in ((0, 0), (0, 1), (1, 1), (1, 5 * payload), (payload, payload + 1),
                           (2 * payload + 3, 40 * payload), (200_003, 200_003), (0, 300_000),
                           (300_000, 1_000_000)):
            stand.start()
            sends, receives, checks = [], [], []
            for p, q in pairs:
                for up_to in (False, True):
                    value = stand.array(p, size)
                    value[:] = generator.integers(0, 256, size, "uint8")
                    out = stand.array(q, room if up_to else size)
                    sends.append(lambda p=p, q=q, v=value: part.group[p].send(v, q))
                    receives.append(
                        lambda p=p, q=q, o=out, u=up_to: part.group[q].recv(o, p, up_to=u))
                    checks.append((out, value.copy(), f"{size} bytes, room for {out.size}, of "
                                                      f"process {p} to {q}"))
            works = [post() for post in (sends + receives if send_first else receives + sends)]
            wait(works)
            got = works[len(sends):] if send_first else works[:len(sends)]
            for work, (out, value, what) in zip(got, checks):
                if work.nbytes != size:
                    raise SystemExit(f"{what}: {work.nbytes} bytes are told")
                same(out[:size], value, what)
                if (out[size:] != 0xA5).any():
                    raise SystemExit(f"{what}: what is behind it was changed")
            count += len(checks)
    return count


def streams(stand, part, generator):
    """Each stream of a pair has an order of its own: a receive that waits holds back none of
    another. One that is not there is refused."""
    count = 0
    pairs = [(p, q) for p in range(stand.count) for q in range(stand.count)]
    for some in ((1, 2, 3), (5, 40, 63)):
        stand.start()
        waiting = [(part.group[q].recv(stand.array(q, 900), p), p) for p, q in pairs]
        works, checks = [], []
        for number in range(6):
            for p, q in pairs:
                for s in some:
                    value = stand.array(p, int(generator.integers(0, 20_000)))
                    value[:] = generator.integers(0, 256, value.size, "uint8")
                    spare = int(generator.integers(0, 5000)) if number % 2 else 0
                    out = stand.array(q, value.size + spare)
                    both = [lambda: part.group[p].send(value, q, tag=s, pair_stream=s),
                            lambda: part.group[q].recv(out, p, tag=s, up_to=spare != 0,
                                                       pair_stream=s)]
                    works += [post() for post in (both if generator.integers(2) else both[::-1])]
                    checks.append((out[:value.size], value.copy(), f"stream {s} of {p} to {q}"))
                    if len(works) > 200:
                        wait(works)
                        works = []
        wait(works)
        for out, value, what in checks:
            same(out, value, what)
        count += len(checks)
        if any(work.is_done() for work, _ in waiting):
            raise SystemExit("a receive of stream 0 is done of which nothing was sent")
        wait([part.group[p].send(stand.array(p, 900), q) for p, q in pairs])
        wait([work for work, _ in waiting])
    told(lambda: part.group[0].send(np.ones(1, "uint8"), 0, pair_stream=64),
         gradwire.Status.INVALID_ARGUMENT, "pair_stream is 64", "a stream too many")
    return count + 2 * len(pairs)
