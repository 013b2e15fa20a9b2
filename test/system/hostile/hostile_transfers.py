# SPDX-License-Identifier: BSD-3-Clause
"""What hostile.py tries with sends, receives, all-to-alls, gathers and scatters."""

import mmap
import os
import random
import struct
import time

from raw_client import (ALL_TO_ALL, DESCRIBE, GATHER, HAS_SPLITS, RECV, SCATTER, SEND, Closed,
                        Refused, form)

TOP = 2**64 - 1
TRANSFERS = ((GATHER, "gather"), (SCATTER, "scatter"), (ALL_TO_ALL, "all-to-all"), (SEND, "send"),
             (RECV, "recv"))


def split_table(input_bytes, output_bytes, *blocks):
    """lib/ipc/command_queue.h, SplitTable; blocks are (offset, bytes)."""
    return struct.pack(f"={2 + 2 * len(blocks)}Q", input_bytes, output_bytes,
                       *[value for block in blocks for value in block])


def wrong_transfers(client, try_command, handle, memory, size, view):
    """Of two processes; what sends, receives and their like cannot be, and splits that lie."""
    for kind, name in TRANSFERS:
        if kind == ALL_TO_ALL:
            try_command(f"{name} with a root", "has no root", handle, 0, input_memory=memory,
                        kind=kind, root=1)
        for other in (2, 2**16, 2**32 - 1) if kind != ALL_TO_ALL else ():
            try_command(f"{name} with process {other}", "none of the group's 2 processes", handle,
                        1, input_memory=memory, output_offset=size // 2, kind=kind, root=other)
        try_command(f"{name} with a redop", "reduces nothing", handle, 1, input_memory=memory,
                    output_offset=size // 2, kind=kind, redop=1)
        # Of a send and a receive it is the stream.
        for event in (64, 2**16, 2**32 - 1) if kind in (SEND, RECV) else (7,):
            try_command(f"{name} with event or stream {event}",
                        f"stream {event}" if kind in (SEND, RECV) else f"event {event}", handle, 1,
                        input_memory=memory, output_offset=size // 2, kind=kind, event=event)
        wrong_flags = (2, 3, 255)
        wrong_flags += (1,) if kind in (SEND, RECV) else ()
        wrong_flags += (4,) if kind != RECV else ()
        for flags in wrong_flags:
            try_command(f"{name} with flags {flags}", "flags", handle, 1, input_memory=memory,
                        output_offset=size // 2, kind=kind, flags=flags)
        for count in (size // 4 + 1, 2**61 + 1, 2**62, 2**63, TOP):
            try_command(f"{name}, count {count:#x}", "", handle, count, input_memory=memory,
                        kind=kind)
        for offset in (size, size - 3, 2**32, TOP - 3):
            try_command(f"{name} at {offset:#x}", "leaves memory", handle, 1, input_memory=memory,
                        input_offset=offset, output_offset=offset, kind=kind)
    try_command("an all-to-all onto itself", "overlap", handle, 10, input_memory=memory,
                kind=ALL_TO_ALL)
    for kind, name in ((GATHER, "gather"), (SCATTER, "scatter")):
        try_command(f"{name} across blocks", "overlap", handle, 100, input_memory=memory,
                    output_offset=4, kind=kind)

    good = split_table(16, 16, (0, 8), (8, 8), (0, 8), (8, 8))
    half = size // 2

    def splits(what, says, at=0, table=good, table_memory=memory, kind=ALL_TO_ALL,
               input_offset=half, output_offset=half + 4096):
        if at + len(table) <= size:
            view[at:at + len(table)] = table
        try_command(what, says, handle, at, input_offset, output_offset, memory, kind=kind,
                    flags=HAS_SPLITS, root=table_memory)

    for other in (0, memory + 7, 2**32 - 1):
        splits(f"splits in memory {other}", "not this client's", table_memory=other)
    for at in (size, size - 8, 2**32, 2**63, TOP - 7, TOP - 15):
        splits(f"splits at {at:#x}", "leaves memory", at=at)
    splits("splits between words", "aligned", at=4)
    for wild in (size, 2**32, 2**63, TOP, TOP - half):
        splits(f"splits of {wild:#x} bytes out", "leaves memory",
               table=split_table(wild, 16, (0, 8), (8, 8), (0, 8), (8, 8)))
        splits(f"splits of {wild:#x} bytes in", "leaves memory",
               table=split_table(16, wild, (0, 8), (8, 8), (0, 8), (8, 8)))
    splits("splits whose sides overlap", "overlap", output_offset=half + 8)


def lying_splits(sockets):
    """Splits whose blocks leave what the command named, at once or after it was checked: nothing
    else is read or written, and who does so is cut off."""
    for what, blocks in (("a block past the end", ((0, 8), (8, 16), (0, 8), (8, 8))),
                         ("a block of 2^63 bytes", ((0, 8), (8, 2**63), (0, 8), (8, 8))),
                         ("an offset of 2^64 - 8", ((0, 8), (TOP - 7, 8), (0, 8), (8, 8))),
                         ("a block in that leaves", ((0, 8), (8, 8), (0, 8), (2**40, 8)))):
        (client, honest), (handle, _) = form(sockets)
        memory, size, fd = client.allocate(1 << 20)
        with mmap.mmap(fd, size) as view:
            view[:] = b"\x5a" * size
            table = split_table(16, 16, *blocks)
            view[:len(table)] = table
            client.push(1, handle, 0, 4096, 8192, memory, kind=ALL_TO_ALL, flags=HAS_SPLITS,
                        root=memory)
            try:
                request, status, text = client.completion(5)
                if status == 0:
                    raise SystemExit(f"{what}: it was done")
            except SystemExit:
                text = client.wait_closed()
            if view[len(table):] != b"\x5a" * (size - len(table)):
                raise SystemExit(f"{what}: memory was written")
        print(f"  {what}: {text}", flush=True)
        client.socket.close()
        honest.socket.close()


def changing_splits(sockets, seconds, seed):
    """Splits that change all the time while both daemons work on them."""
    generator = random.Random(seed)
    deadline = time.monotonic() + seconds
    groups = pushed = 0
    while time.monotonic() < deadline:
        clients, handles = form(sockets)
        groups += 1
        memory, size, fd = clients[0].allocate(1 << 20)
        other, other_size, other_fd = clients[1].allocate(1 << 20)
        end = min(deadline, time.monotonic() + 0.7)
        with mmap.mmap(fd, size) as view:
            try:
                number = 0
                while time.monotonic() < end:
                    number += 1
                    for client, handle, owned in ((clients[0], handles[0], memory),
                                                  (clients[1], handles[1], other)):
                        if client is clients[1]:
                            client.push(number, handle, 64, 1 << 18, 1 << 19, owned,
                                        kind=ALL_TO_ALL)
                            continue
                        view[:80] = split_table(512, 512, (0, 256), (256, 256), (0, 256),
                                                (256, 256))
                        client.push(number, handle, 0, 1 << 18, 1 << 19, owned, kind=ALL_TO_ALL,
                                    flags=HAS_SPLITS, root=owned)
                        pushed += 1
                    for _ in range(200):
                        at = 8 * generator.randrange(10)
                        view[at:at + 8] = struct.pack("=Q", generator.choice(
                            [0, 8, 256, 512, size, 2**63, TOP, generator.getrandbits(64)]))
                    for client in clients:
                        client.completion(0.1)
                    clients[0].send(DESCRIBE)
                    clients[0].receive()
            except (Closed, Refused, SystemExit):
                pass
        for client in clients:
            client.socket.close()
        os.close(fd)
        os.close(other_fd)
    print(f"  splits that change: {groups} groups, {pushed} commands", flush=True)
