#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""transfers.py [options] SOCKET...: what moves between pairs of processes, byte for byte: sends and
receives in both orders, up to a size, of several streams of a pair; all-to-all, gather and scatter
with equal and given counts, of every root; in memory that is shared and that is not. Processes are
at the daemons that --places names."""

import argparse
import sys
import time

import numpy as np

import gradwire
from groups import Part
from pair_orders import receives_up_to, streams
from ring import WAIT_S
from told import same, told, wait

MOST = 768  # GW_MAX_TRANSFERS


class Stand:
    """The job's clients, and memory for arrays that no other op has."""

    def __init__(self, sockets, places, copied, alone=False):
        self.copied = copied
        self.alone = alone
        self.clients = [gradwire.Client(sockets[place]) for place in places]
        self.infos = [client.describe() for client in self.clients]
        self.payload = min(client.info()["max_payload_bytes"] for client in self.clients)
        self.count = len(places)
        self.regions = [None] * self.count
        self.used = [0] * self.count
        self.reserve(24 << 20)

    def reserve(self, nbytes):
        if self.copied:
            return
        self.regions = [client.allocate(nbytes).array("uint8") for client in self.clients]

    def start(self):
        """What was placed so far is done with."""
        self.used = [0] * self.count

    def array(self, process, size, kind="uint8"):
        kind = np.dtype(kind)
        if self.copied:
            return np.full(size, 0xA5, "uint8").view("uint8").astype(kind)
        begin = (self.used[process] + 63) // 64 * 64
        self.used[process] = begin + size * kind.itemsize
        array = self.regions[process][begin:self.used[process]].view(kind)
        array.view("uint8")[:] = 0xA5
        return array

    def group(self, processes=None):
        return Part(self.clients, self.infos, list(processes or range(self.count)),
                    transfers_alone=self.alone)


def send_and_receive(stand, part, generator):
    """Every ordered pair, the process itself too; whoever posts first; several after each other."""
    count = 0
    sizes = [0, 1, 7, stand.payload - 1, stand.payload, stand.payload + 1, 3 * stand.payload + 5,
             200_003]
    pairs = [(p, q) for p in range(stand.count) for q in range(stand.count)]
    for number, size in enumerate(sizes):
        for send_first in (True, False):
            stand.start()
            sends, receives, checks = [], [], []
            for p, q in pairs:
                value = stand.array(p, size)
                value[:] = generator.integers(0, 256, size, "uint8")
                out = stand.array(q, size)
                sends.append(lambda p=p, q=q, v=value: part.group[p].send(v, q, tag=number))
                receives.append(lambda p=p, q=q, o=out: part.group[q].recv(o, p, tag=number))
                checks.append((out, value.copy(), f"{size} bytes of process {p} to {q}"))
            works = [post() for post in (sends + receives if send_first else receives + sends)]
            wait(works)
            for out, value, what in checks:
                same(out, value, what)
            count += len(pairs)
    # A large one, and several of a pair in a row, with a size each: the order is the calls'.
    stand.start()
    large = 5 * (1 << 20) + 13
    values = [stand.array(0, large)] + [stand.array(0, 1000 + i) for i in range(40)]
    outs = [stand.array(stand.count - 1, value.size) for value in values]
    for value in values:
        value[:] = generator.integers(0, 256, value.size, "uint8")
    works = [part.group[stand.count - 1].recv(out, 0) for out in outs]
    works += [part.group[0].send(value, stand.count - 1) for value in values]
    wait(works)
    for i, (out, value) in enumerate(zip(outs, values)):
        same(out, value, f"number {i} of {value.size} bytes in a row")
    return count + len(values)


def waiting_receives(stand, part, generator):
    """As many receives as there may be wait, and the ops of the group, if it has any, go on beside
    them; so do other pairs. One more is refused by name."""
    stand.start()
    others = stand.count - 1
    size = 700
    outs = [stand.array(0, size) for _ in range(MOST)]
    works = [part.group[0].recv(out, 1 + i % others) for i, out in enumerate(outs)]
    try:
        part.group[0].recv(stand.array(0, 1), 1)
        raise SystemExit(f"receive {MOST + 1} was taken")
    except gradwire.GradwireError as error:
        if error.code != gradwire.Status.BUSY:
            raise SystemExit(f"receive {MOST + 1}: {error.code.name}: {error}") from error
        print(f"  one receive more: {error}", flush=True)
    began = time.monotonic()
    for _ in range(0 if stand.alone else 50):
        sums = [group.all_reduce(np.full(1000, p, "int32")) for p, group in enumerate(part.group)]
        for work in sums:
            if (work.wait(WAIT_S) != sum(range(stand.count))).any():
                raise SystemExit("an all-reduce beside waiting receives is wrong")
    if stand.count > 2:
        value, out = stand.array(1, 100_000), stand.array(2, 100_000)
        value[:] = 3
        wait([part.group[1].send(value, 2), part.group[2].recv(out, 1)])
        same(out, value, "beside waiting receives")
    beside = "another pair" if stand.alone else "50 all-reduces and another pair"
    print(f"  {beside} beside {MOST} receives that wait: {time.monotonic() - began:.2f} s",
          flush=True)
    if any(work.is_done() for work in works):
        raise SystemExit("a receive is done of which nothing was sent")
    values = []
    for i in range(MOST):
        value = np.frombuffer(generator.bytes(size), "uint8")
        values.append(value)
        works.append(part.group[1 + i % others].send(value, 0))
    wait(works)
    for i, (out, value) in enumerate(zip(outs, values)):
        same(out, value, f"receive {i} that waited")
    return MOST


def all_to_all(stand, part, generator, kind):
    count = stand.count
    ops = 0
    for block in (0, 1, 7, stand.payload // np.dtype(kind).itemsize + 1, 40_001):
        stand.start()
        values = [stand.array(p, count * block, kind) for p in range(count)]
        outs = [stand.array(p, count * block, kind) for p in range(count)]
        for value in values:
            value.view("uint8")[:] = generator.integers(0, 256, value.nbytes, "uint8")
        wait([part.group[p].all_to_all(values[p], outs[p], tag=3) for p in range(count)])
        for q in range(count):
            want = np.concatenate([values[p][q * block:(q + 1) * block] for p in range(count)])
            same(outs[q], want, f"all-to-all of {block} {kind}, process {q}")
        ops += 1
    for most in (1, 5, 3000, 60_000):
        stand.start()
        counts = generator.integers(0, most + 1, (count, count))
        counts[generator.integers(count), :] = 0
        values = [stand.array(p, int(counts[p].sum()), kind) for p in range(count)]
        outs = [stand.array(p, int(counts[:, p].sum()), kind) for p in range(count)]
        for value in values:
            value.view("uint8")[:] = generator.integers(0, 256, value.nbytes, "uint8")
        wait([part.group[p].all_to_all(values[p], outs[p], input_counts=counts[p].tolist(),
                                       output_counts=counts[:, p].tolist())
              for p in range(count)])
        starts = np.concatenate([np.zeros((count, 1), int), np.cumsum(counts, 1)], 1)
        for q in range(count):
            want = np.concatenate([values[p][starts[p, q]:starts[p, q + 1]]
                                   for p in range(count)])
            same(outs[q], want, f"all-to-all of up to {most} {kind}, process {q}")
        ops += 1
    return ops


def gather_and_scatter(stand, part, generator, kind):
    count = stand.count
    ops = 0
    for number, block in enumerate((0, 1, 5, stand.payload // np.dtype(kind).itemsize + 1, 30_001)):
        for root in range(count):
            for given in (False, True):
                stand.start()
                counts = (generator.integers(0, block + 1, count) if given
                          else np.full(count, block)).tolist()
                what = f"of {counts} {kind} and process {root}"
                values = [stand.array(p, counts[p], kind) for p in range(count)]
                whole = stand.array(root, sum(counts), kind)
                for value in values:
                    value.view("uint8")[:] = generator.integers(0, 256, value.nbytes, "uint8")
                named = {"output_counts": counts} if given else {}
                wait([part.group[p].gather(values[p], root, out=whole if p == root else None,
                                           tag=number, **(named if p == root else {}))
                      for p in range(count)])
                same(whole, np.concatenate(values), "gather " + what)
                outs = [stand.array(p, counts[p], kind) for p in range(count)]
                named = {"input_counts": counts} if given else {}
                wait([part.group[p].scatter(whole if p == root else None, outs[p], root,
                                            tag=number, **(named if p == root else {}))
                      for p in range(count)])
                for p in range(count):
                    same(outs[p], values[p], f"scatter {what}, process {p}")
                ops += 2
    return ops


def in_place(stand, part):
    """The root's own block may lie where it ends; parts of an all-to-all may not overlap."""
    stand.start()
    count = stand.count
    whole = stand.array(1, count * 100)
    mine = [stand.array(p, 100) for p in range(count)]
    for p in range(count):
        mine[p][:] = p + 1
    own = whole[100:200]
    own[:] = 2
    wait([part.group[p].gather(own if p == 1 else mine[p], 1, out=whole if p == 1 else None)
          for p in range(count)])
    want = np.repeat(np.arange(1, count + 1, dtype="uint8"), 100)
    same(whole, want, "a gather in place")
    wait([part.group[p].scatter(whole if p == 1 else None, own if p == 1 else mine[p], 1)
          for p in range(count)])
    for p in range(count):
        same(own if p == 1 else mine[p], np.full(100, p + 1, "uint8"), "a scatter in place")
    for what, act in (
            ("a gather", lambda: part.group[1].gather(whole[50:150], 1, out=whole)),
            ("a scatter", lambda: part.group[1].scatter(whole, whole[50:150], 1)),
            ("an all-to-all", lambda: part.group[1].all_to_all(whole, whole))):
        try:
            act().wait(WAIT_S)
            raise SystemExit(f"{what} that overlaps was taken")
        except gradwire.GradwireError as error:
            print(f"  {what} that overlaps: {error}", flush=True)


def late(stand):
    """Who waits is told for whom; a group that is left with something unfinished says so."""
    part = stand.group()
    out = np.zeros(100, "uint8")
    work = part.group[0].recv(out, 1)
    told(lambda: work.wait(0.3), gradwire.Status.TIMED_OUT, r"process 1\b.*rank \d",
         "a recv in vain")
    part.group[1].send(np.ones(100, "uint8"), 0).wait(WAIT_S)
    work.wait(WAIT_S)
    part.leave()
    part = stand.group()
    work = part.group[0].recv(out, 1)
    part.group[0].abort("enough")
    told(lambda: work.wait(WAIT_S), gradwire.Status.ABORTED, "enough", "a recv of an aborted group")
    part.leave()


def mismatches(stand):
    aborted = gradwire.Status.ABORTED
    value = np.ones(8, "uint8")
    pair = r"transfer 1 of process {} to process {}: sent {}.*, received {}"
    last = stand.count - 1
    cases = [
        ("sizes", lambda g: [g[0].send(value, last), g[last].recv(value[:4].copy(), 0)],
         pair.format(0, last, "8 bytes", "4 bytes")),
        ("more than there is room for",
         lambda g: [g[0].send(value, last), g[last].recv(value[:4].copy(), 0, up_to=True)],
         pair.format(0, last, "8 bytes", "up to 4 bytes")),
        ("tags of a receive with room",
         lambda g: [g[0].send(value[:4], last, tag=5),
                    g[last].recv(value.copy(), 0, tag=6, up_to=True)],
         r"4 bytes with tag 5 .*up to 8 bytes with tag 6"),
        ("tags", lambda g: [g[0].send(value, last, tag=5), g[last].recv(value.copy(), 0, tag=6)],
         r"with tag 5 .*with tag 6"),
        ("calls", lambda g: [g[0].send(value, last),
                             g[last].gather(value, last, out=np.zeros(8 * stand.count, "uint8"))],
         r"\(send and recv\).*\(gather\)"),
        ("roots", lambda g: [g[0].scatter(np.zeros(stand.count * 8, "uint8"), value.copy(), 0),
                             g[last].recv(value.copy(), 0)], r"\(scatter\).*\(send and recv\)"),
    ]
    for what, post, pattern in cases:
        part = stand.group()
        works = post(part.group)
        for work in works:
            told(lambda w=work: w.wait(WAIT_S), aborted, pattern, what)
        part.leave()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs="+")
    parser.add_argument("--places", help="the daemon of each process, by commas; default one each")
    parser.add_argument("--copied", action="store_true", help="memory that is not shared")
    parser.add_argument("--alone", action="store_true", help="groups for transfers alone")
    parser.add_argument("--refused", help="each call is UNSUPPORTED, with this in its text")
    parser.add_argument("--mismatch", action="store_true", help="calls that do not fit together")
    parser.add_argument("--seed", type=int, default=3)
    arguments = parser.parse_args()
    places = ([int(place) for place in arguments.places.split(",")] if arguments.places
              else list(range(len(arguments.sockets))))
    stand = Stand(arguments.sockets, places, arguments.copied, arguments.alone)
    if arguments.mismatch:
        mismatches(stand)
        late(stand)
        return 0
    part = stand.group()
    if arguments.refused:
        value = np.ones(4 * stand.count, "uint8")
        for what, post in (("send", lambda g: g.send(value, 0)),
                           ("recv", lambda g: g.recv(value, 0)),
                           ("all-to-all", lambda g: g.all_to_all(value, value.copy()))):
            told(lambda p=post: p(part.group[1]).wait(WAIT_S), gradwire.Status.UNSUPPORTED,
                 arguments.refused, what)
        wait([group.all_reduce(np.ones(5, "float32")) for group in part.group])
        part.leave()
        return 0
    generator = np.random.default_rng(arguments.seed)
    sends = send_and_receive(stand, part, generator)
    sends += receives_up_to(stand, part, generator)
    sends += streams(stand, part, generator)
    moves = sum(all_to_all(stand, part, generator, kind) for kind in ("uint8", "float32"))
    moves += sum(gather_and_scatter(stand, part, generator, kind) for kind in ("int8", "float64"))
    if not arguments.copied:
        in_place(stand, part)
    waiting = waiting_receives(stand, part, generator) if stand.count > 1 else 0
    part.leave()
    print(f"processes at {places}{', copied' if arguments.copied else ''}: {sends} sends, {moves} "
          f"all-to-alls, gathers and scatters, {waiting} receives that waited: byte for byte",
          flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
