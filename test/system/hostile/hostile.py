#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""hostile.py SOCKET SOCKET: a client that means no good, at the first daemon; the second has an
honest part in its groups. Each thing it tries has to be refused with a reason, and what breaks the
rules for good has to get it cut off with one. It prints what the daemon said."""

import argparse
import fcntl
import mmap
import os
import random
import struct
import sys
import threading
import time

from hostile_transfers import changing_splits, lying_splits, wrong_transfers
from raw_client import (ABORT, ALL_GATHER, ALL_REDUCE, ALLOCATE, BARRIER, BROADCAST, COMMAND_HEAD,
                        COMMAND_TAIL, COMMANDS, COMPLETION_HEAD, DESCRIBE, ENTRIES, FREE, HEADER,
                        JOIN, JOIN_REQUEST, LEAVE, MAGIC, OPEN, REDUCE, REDUCE_SCATTER, VERSION,
                        Closed, RawClient, Refused, form)

TOP = 2**64 - 1
INT32, PREMUL_SUM = 5, 8  # lib/base/types.h


def refused(what, says, act):
    """act() is answered with an error whose text has `says`."""
    try:
        act()
    except Refused as refusal:
        if says not in refusal.args[1]:
            raise SystemExit(f"{what}: \"{refusal.args[1]}\", not \"{says}\"") from refusal
        print(f"  {what}: {refusal.args[1]}", flush=True)
        return
    raise SystemExit(f"{what} was not refused")


def broken_messages(path):
    """What is no message gets one answer, which says what is wrong; the connection is closed."""
    whole = HEADER.pack(MAGIC, VERSION, DESCRIBE, 1, HEADER.size, 0, 0)
    pipe = os.pipe()
    cases = [
        ("a message cut in its header", "shorter than its", lambda c: c.send_bytes(whole[:9])),
        ("one byte", "shorter than its header", lambda c: c.send_bytes(b"G")),
        ("a wrong magic", "magic 0x", lambda c: c.send(DESCRIBE, magic=0x21212121)),
        ("another version", f"version {VERSION}", lambda c: c.send(DESCRIBE, version=VERSION + 1)),
        ("a length too large", "header says 4096", lambda c: c.send(DESCRIBE, size=4096)),
        ("a length too small", "header says 3", lambda c: c.send(DESCRIBE, size=3)),
        ("a message of 140 kB", "more than 131072 bytes", lambda c: c.send(JOIN, bytes(140_000))),
        ("twelve descriptors", "descriptors", lambda c: c.send(OPEN, fds=[pipe[0]] * 12)),
    ]
    for what, says, act in cases:
        client = RawClient(path)
        act(client)
        _, code, body, _ = client.receive()
        text = body.rstrip(b"\0").decode()
        if not code or says not in text:
            raise SystemExit(f"{what}: answered with {code} \"{text}\", not \"{says}\"")
        client.wait_closed()
        print(f"  {what}: {text}", flush=True)
    for fd in pipe:
        os.close(fd)


def wrong_requests(sockets):
    """Whole messages that ask for what cannot be: refused one by one; the connection stays."""
    path = sockets[0]
    early = RawClient(path)
    for kind in (ALLOCATE, FREE, JOIN, LEAVE, ABORT, 77, 65535):
        refused(f"type {kind} before open", "came before 'open'", lambda k=kind: early.call(k))
    refused("open of no bytes", "must have 8", lambda: early.call(OPEN))
    refused("open of another ABI", "version 9 of the control protocol",
            lambda: early.call(OPEN, struct.pack("=II", 9, 0)))

    (client, honest), (handle, honest_handle) = form(sockets)
    bystander = RawClient(path).open()
    foreign = bystander.allocate(4096)[0]
    refused("open twice", "already been opened", client.open)
    refused("an unknown type", "does not know", lambda: client.call(77))
    for kind, size in ((ALLOCATE, 8), (FREE, 8), (LEAVE, 8), (ABORT, 168)):
        for body in (b"", bytes(size - 1), bytes(size + 1), bytes(5000)):
            refused(f"type {kind} of {len(body)} bytes", f"must have {size}",
                    lambda k=kind, b=body: client.call(k, b))
    for size in (0, TOP, 2**63, 1 << 50):
        refused(f"{size} bytes of memory", "bytes of gradient memory were asked for",
                lambda s=size: client.call(ALLOCATE, struct.pack("=Q", s)))
    for memory in (0, 2**32 - 1, foreign):
        refused(f"freeing memory {memory}", "not a live region of this client",
                lambda m=memory: client.call(FREE, struct.pack("=II", m, 0)))
    for group in (0, TOP, handle + 1000):
        for kind in (LEAVE, ABORT):
            refused(f"type {kind} of group {group}", "does not name a group",
                    lambda k=kind, g=group: client.call(
                        k, struct.pack("=Q", g) + bytes(160 if k == ABORT else 0)))
    for kind in (LEAVE, ABORT):
        refused(f"type {kind} of a group of others", "does not name a group",
                lambda k=kind: bystander.call(
                    k, struct.pack("=Q", handle) + bytes(160 if k == ABORT else 0)))

    own = client.describe()
    other = honest.describe()

    def join(what, says, group=1, rank=0, nranks=2, member=0, members=1, timeout=1000, table=None,
             processes=0):
        body = JOIN_REQUEST.pack(group, 1, rank, nranks, member, members, timeout, processes, 0)
        table = own + other if table is None else table
        refused(f"join with {what}", says, lambda: client.call(JOIN, body + table))

    join("a table cut short", "", table=own + other[:100])
    join("no table", "", table=b"")
    join("more table than ranks", "", table=own + other + other)
    join("no ranks", "", nranks=0, table=b"")
    join("65535 ranks", "", nranks=65535)
    join("65535 ranks of no table", "", nranks=65535, table=b"")
    join("a rank outside", "rank 9 in a group of 2", rank=9)
    join("no members", "0 members", members=0)
    join("60000 members", "60000 members", members=60000)
    join("a member outside", "member 5 in a rank of 1", member=5)
    join("group 0", "group id 0", group=0)
    join("a timeout of weeks", "ms was asked for: it must be at most", timeout=2**32 - 1)
    join("the same daemon twice", "the same daemon", table=own + own)
    join("another's place", "", rank=1)
    join("a table of zeros", "", table=bytes(1024))
    join("a table of noise", "", table=random.Random(3).randbytes(1024))
    join("ranks of no process", "must have", processes=3)
    join("65536 processes", "must be at most 65535", processes=65536)
    for what, ranks, says in (
            ("a process at no rank", (0, 2), "process 1 is at rank 2"),
            ("a rank without processes", (0, 0), "rank 1 has 0 processes"),
            ("too many processes at a rank", (0,) * 65 + (1,), "rank 0 has 65 processes"),
            ("fewer members than processes", (0, 1, 0), "2 of the group's processes are at")):
        join(what, says, processes=len(ranks),
             table=own + other + struct.pack("=%dH" % len(ranks), *ranks))
    for at in (6, 8, 16, 20, 24, 32, 60, 300):
        noise = bytearray(own)
        noise[at:at + 2] = b"\xff\xff"
        join(f"byte {at} of its own entry changed", "", table=bytes(noise) + other)
    for one, group in ((client, handle), (honest, honest_handle)):
        one.send(LEAVE, struct.pack("=Q", group))  # together: a leave waits for the others
    for one in (client, honest):
        if one.receive()[1]:
            raise SystemExit("it is not let go after all this")
    for one in (client, honest, bystander, early):
        one.socket.close()


def wrong_collectives(try_command, handle, memory, size):
    """Of two processes; what an all-reduce has no field for."""
    for kind, name in ((REDUCE, "reduce"), (BROADCAST, "broadcast")):
        for root in (2, 2**16, 2**32 - 1):
            try_command(f"{name} with root {root}", "none of the group's 2 processes", handle, 1,
                        input_memory=memory, kind=kind, root=root)
    for kind, name in ((ALL_REDUCE, "all-reduce"), (ALL_GATHER, "all-gather"),
                       (REDUCE_SCATTER, "reduce-scatter"), (BARRIER, "barrier")):
        try_command(f"{name} with a root", "has no root", handle, 0, input_memory=memory, kind=kind,
                    root=1)
    for kind, name in ((BROADCAST, "broadcast"), (ALL_GATHER, "all-gather"), (BARRIER, "barrier")):
        try_command(f"{name} with a redop", "reduces nothing", handle, 0, input_memory=memory,
                    kind=kind, redop=1)
    try_command("a barrier of an element", "has no elements", handle, 1, input_memory=memory,
                kind=BARRIER)
    half = size // 8  # so many fp32 of each process fill the memory
    try_command("an all-gather past the end", "leaves memory", handle, half + 1, kind=ALL_GATHER,
                input_memory=memory)
    try_command("a reduce-scatter past the end", "leaves memory", handle, half + 1,
                kind=REDUCE_SCATTER, input_memory=memory)
    for count in (2**61 + 1, 2**62, 2**63, TOP):
        for kind in (ALL_GATHER, REDUCE_SCATTER):
            try_command(f"collective {kind}, count {count:#x}", "", handle, count, kind=kind,
                        input_memory=memory)
    for kind in (ALL_GATHER, REDUCE_SCATTER):
        try_command(f"collective {kind} across blocks", "overlap in part", handle, 100, kind=kind,
                    input_memory=memory, output_offset=4)


def wrong_commands(sockets):
    """Commands that no op can come of: each answered with its reason; memory is left alone."""
    (client, honest), (handle, _) = form(sockets)
    memory, size, fd = client.allocate(2 << 20)
    with mmap.mmap(fd, size) as view:
        view[:] = b"\x5a" * size
    bystander = RawClient(sockets[0]).open()
    foreign, foreign_size, foreign_fd = bystander.allocate(2 << 20)
    with mmap.mmap(foreign_fd, foreign_size) as view:
        view[:] = b"\xa5" * foreign_size
    try_command = client.refused_command
    for group in (0, TOP, handle + 1, handle << 32):
        try_command(f"group {group:#x}", "is not an open group", group, 1, input_memory=memory)
    bystander.refused_command("a group of others", "is not an open group", handle, 1,
                              input_memory=foreign)
    for other in (0, memory + 7, 2**32 - 1, foreign):
        try_command(f"input memory {other}", "not this client's", handle, 1, input_memory=other,
                    output_memory=memory)
        try_command(f"output memory {other}", "not this client's", handle, 1, input_memory=memory,
                    output_memory=other)
    for offset in (size, size - 3, size + 1, 2**31, 2**32, 2**63, TOP, TOP - 3):
        try_command(f"input at {offset:#x}", "leaves memory", handle, 1, input_offset=offset,
                    input_memory=memory)
        try_command(f"output at {offset:#x}", "leaves memory", handle, 1, output_offset=offset,
                    input_memory=memory)
    for count in (size // 4 + 1, 2**32, 2**61, 2**62, 2**62 + 1, 2**63, TOP):
        try_command(f"count {count:#x}", "", handle, count, input_memory=memory)
    try_command("overlap in part", "overlap in part", handle, 100, output_offset=8,
                input_memory=memory)
    for value in (8, 100, 255):
        try_command(f"datatype {value}", "datatype", handle, 1, input_memory=memory, datatype=value)
    for value in (9, 100, 255):
        try_command(f"redop {value}", "redop", handle, 1, input_memory=memory, redop=value)
    try_command("premul_sum of int32", "premul_sum", handle, 1, input_memory=memory, datatype=INT32,
                redop=PREMUL_SUM)
    for value in (0, 12, 255):
        try_command(f"type {value}", "type", handle, 1, input_memory=memory, kind=value)
    wrong_collectives(try_command, handle, memory, size)
    try_command("flags", "flags", handle, 1, input_memory=memory, flags=1)
    with mmap.mmap(fd, size) as view:
        wrong_transfers(client, try_command, handle, memory, size, view)
        view[:] = b"\x5a" * size
    for mapped, value in ((fd, 0x5a), (foreign_fd, 0xa5)):
        with mmap.mmap(mapped, size, prot=mmap.PROT_READ) as view:
            if view[:] != bytes([value]) * size:
                raise SystemExit("a refused command changed memory")
    for target in (fd, client.queue_fd):
        for change in (lambda f: os.ftruncate(f, 64 << 20),
                       lambda f: fcntl.fcntl(f, 1033, 0x8)):  # F_ADD_SEALS
            try:
                change(target)
                raise SystemExit("shared memory could be grown or sealed")
            except PermissionError:
                pass
    print("  growing and sealing shared memory: not permitted", flush=True)
    # An op under way, and the memory under it freed: the answer waits, or the group is gone first.
    client.push(1, handle, 1000, input_memory=memory)
    client.send(FREE, struct.pack("=II", memory, 0))
    for one in (client, honest, bystander):
        one.socket.close()


def broken_queues(sockets):
    """What breaks the queue's rules gets the client cut off; its group ends, and names its rank."""
    indexes = [("1025 commands", COMMAND_TAIL, lambda v: v + ENTRIES + 1),
               ("a command index behind", COMMAND_TAIL, lambda v: v - 1),
               ("a command index of nowhere", COMMAND_TAIL, lambda v: v + 2**31)]
    for what, at, change in indexes:
        (client, honest), (handle, _) = form(sockets)
        memory = client.allocate(4096)[0]
        client.push(1, handle, 10, input_memory=memory)  # an op that waits for the other rank
        while client.word(COMMAND_HEAD) != client.word(COMMAND_TAIL):
            time.sleep(0.001)  # it has been taken
        client.set_word(at, change(client.word(at)))
        client.ring_doorbell()
        words = client.wait_closed()
        if "command queue's rules" not in words:
            raise SystemExit(f"{what}: its last words are \"{words}\"")
        print(f"  {what}: {words}", flush=True)
        event_of(honest, "a client process of rank 0 died")
        honest.socket.close()


def event_of(client, says):
    client.socket.settimeout(20)
    client.send(DESCRIBE)
    deadline = time.monotonic() + 20
    while not any(says in text for _, text in client.events):
        if time.monotonic() > deadline:
            raise SystemExit(f"the other rank is not told: \"{client.last_words()}\"")
        client.send(DESCRIBE)
        client.receive()


def noise(sockets, seconds, seed):
    """Noise in the queue's whole region, from a seed that is printed, until the daemon has enough;
    then again as a new client."""
    generator = random.Random(seed)
    print(f"  noise, seed {seed}", flush=True)
    deadline = time.monotonic() + seconds
    clients = pushed = 0
    while time.monotonic() < deadline:
        (client, honest), (handle, _) = form(sockets)
        memory, size, _ = client.allocate(1 << 20)
        clients += 1
        end = min(deadline, time.monotonic() + 1)
        try:
            while time.monotonic() < end:
                for _ in range(generator.randrange(1, 40)):
                    wild = lambda: generator.choice(
                        [0, 1, size, size // 4, TOP, 2**32, generator.getrandbits(64),
                         generator.getrandbits(16)])
                    client.push(wild(), generator.choice([handle, handle, wild()]), wild(), wild(),
                                wild(), generator.choice([memory, memory, wild() & 0xffffffff]),
                                memory, wild() & 0xffffffff,
                                generator.choice([1, 1, 1, 6, 7, 8, 9, 10]),
                                generator.randrange(10), generator.choice([0, 0, 0, 1, 9]),
                                generator.choice([0, 0, 0, 1, 9]), 0,
                                generator.choice([0, 1, memory, wild() & 0xffffffff]))
                    pushed += 1
                if generator.random() < 0.05:
                    at = generator.randrange(0, len(client.queue) - 64)
                    client.queue[at:at + 64] = generator.randbytes(64)
                if generator.random() < 0.1:  # overwrites what the daemon may be reading
                    at = COMMANDS + generator.randrange(ENTRIES * 64 - 64)
                    client.queue[at:at + 64] = generator.randbytes(64)
                if generator.random() < 0.3:
                    client.set_word(COMPLETION_HEAD, generator.getrandbits(32))
                client.ring_doorbell()
                client.send(DESCRIBE)
                client.receive()
        except (Closed, Refused):
            pass
        client.socket.close()
        honest.socket.close()
    print(f"  {clients} clients, {pushed} commands", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs=2)
    parser.add_argument("--noise-seconds", type=float, default=5)
    parser.add_argument("--seed", type=int, default=os.environ.get("GRADWIRE_TEST_SEED", "1"))
    arguments = parser.parse_args()
    sockets = arguments.sockets
    print("messages that are none", flush=True)
    broken_messages(sockets[0])
    print("requests for what cannot be", flush=True)
    wrong_requests(sockets)
    print("commands that no op can come of", flush=True)
    wrong_commands(sockets)
    print("splits that lie", flush=True)
    lying_splits(sockets)
    print("queues that break the rules", flush=True)
    broken_queues(sockets)
    seed = arguments.seed
    noise(sockets, arguments.noise_seconds, seed)
    changing_splits(sockets, arguments.noise_seconds / 2, seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
