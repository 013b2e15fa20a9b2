#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""lane_hogs.py WHAT SOCKET [PID|POOL]: what one user, not root, may do to the lanes of a daemon.

  punch  removes pages of its memory when no page is left, and lets ops touch each of them; PID is
         the daemon's, whose maps are counted
  cut    cuts its memory, or its queues, to nothing under an op
  keep   hangs up and keeps what it had: POOL is the folder of the tmpfs that memory comes from
  end    a group of many processes with hundreds of receives each, one of which leaves
  flood  many clients post nothing but commands that are refused
"""

import ctypes
import mmap
import os
import secrets
import struct
import sys
import threading
import time

import raw_client
from raw_client import COMMAND, COMMANDS, COMPLETIONS, ENTRIES, JOIN_REQUEST

USER = 65534
PAGE, PAGES = 4096, 512
MEMBERS, RECEIVES = 16, 760
CLIENTS, EACH = 24, 2000


def connect(path, user=USER):
    """@return a client that the daemon takes for the user's."""
    os.seteuid(user)
    try:
        return raw_client.RawClient(path).open()
    finally:
        os.seteuid(0)


def fill(client, commands):
    for at, command in enumerate(commands):
        place = COMMANDS + at % ENTRIES * COMMAND.size
        client.queue[place:place + COMMAND.size] = command
    client.set_word(raw_client.COMMAND_TAIL, len(commands))
    client.ring_doorbell()


def wait_for(what, condition):
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"after 60 s not yet: {what}")
        time.sleep(0.005)


def maps(pid):
    with open(f"/proc/{pid}/maps", encoding="ascii") as lines:
        return sum(1 for _ in lines)


def punch(path, pid):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    keep_size, punch_hole = 1, 2
    client = connect(path)
    handle, size, memory = client.allocate(PAGES * PAGE)
    group = client.join(secrets.randbits(62) + 1, 0, [client.describe()])
    if libc.fallocate(memory, keep_size | punch_hole, 0, size) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")
    filler = connect(path, 0)
    taken = 0
    for pages in (1024, 64, 1):  # other memory, until no page is left
        try:
            while True:
                taken += filler.allocate(pages * PAGE)[1]
        except raw_client.Refused:
            pass
    before = maps(pid)
    # Each reads one page and writes the next but one, so that what lies between stays as it is.
    fill(client, [COMMAND.pack(page + 1, group, 16, page * PAGE, (page + 2) * PAGE, handle, handle,
                               0, raw_client.ALL_REDUCE, 0, 0, 0, 0, 0)
                  for page in range(0, PAGES - 2, 4)])
    words = client.wait_closed()
    if "removed pages from the memory" not in words:
        raise SystemExit(f"the daemon's last words: {words!r}")
    # Its memory goes, so the most would be seen before; what is left over must be no more.
    after = maps(pid)
    print(f"{taken >> 20} MiB taken, {before} maps before and {after} after: {words}")
    if after > before + 16:
        raise SystemExit("the daemon has more maps than before")
    filler.socket.close()


def cut(path):
    for what in ("memory", "queue"):
        client = connect(path)
        handle, _, memory = client.allocate(PAGES * PAGE)
        group = client.join(secrets.randbits(62) + 1, 0, [client.describe()])
        fill(client, [COMMAND.pack(1, group, 16, 0, PAGE, handle, handle, 0, raw_client.ALL_REDUCE,
                                   0, 0, 0, 0, 0)])
        wait_for("the op ends", lambda: client.word(raw_client.COMPLETION_TAIL) == 1)
        client.push(2, group, 16, 0, PAGE, handle, handle)
        os.ftruncate(memory if what == "memory" else client.queue_fd, 0)
        if what == "memory":
            client.push(3, group, 16, 0, PAGE, handle, handle)
        else:
            client.ring_doorbell()
        print(f"its {what}: {client.wait_closed()}")


def keep(path, pool):
    def free():
        found = os.statvfs(pool)
        return found.f_bavail * found.f_frsize

    size, before = 1 << 20, free()
    clients = [connect(path) for _ in range(4)]
    kept = []
    for client in clients:
        _, got, memory = client.allocate(size)
        kept.append((memory, mmap.mmap(memory, got)))
    for client in clients:
        client.socket.close()
    time.sleep(1)
    if free() > before - len(clients) * size:
        raise SystemExit("memory was taken from clients that have their completion sockets")
    for client in clients:
        os.close(client.completion_fd)
    # Another user's ops have some of it, more or less.
    wait_for("the memory is free, which this process has mapped",
             lambda: free() > before - size / 2)
    print(f"{len(kept)} MiB stay while somebody has the clients' sockets, and no longer")


def end(path):
    clients = [connect(path) for _ in range(MEMBERS)]
    info = clients[0].describe()
    group = secrets.randbits(62) + 1
    handles = [0] * MEMBERS

    def join(member):
        body = JOIN_REQUEST.pack(group, 1, 0, 1, member, MEMBERS, 20_000, 0, 0)
        answer = clients[member].call(raw_client.JOIN, body + info)[0]
        handles[member] = struct.unpack_from("=Q", answer)[0]

    threads = [threading.Thread(target=join, args=(member,)) for member in range(MEMBERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for member, client in enumerate(clients):
        fill(client, [COMMAND.pack(k + 1, handles[member], 0, 0, 0, 0, 0, 0, raw_client.RECV, 7, 0,
                                   0, 0, (member + 1) % MEMBERS) for k in range(RECEIVES)])
    for client in clients:
        wait_for("its receives are taken",
                 lambda client=client: client.word(raw_client.COMMAND_HEAD) == RECEIVES)
    clients[-1].socket.close()
    for client in clients[:-1]:
        wait_for("its receives have ended",
                 lambda client=client: client.word(raw_client.COMPLETION_TAIL) == RECEIVES)
        status = struct.unpack_from("=QQI", client.queue, COMPLETIONS)[2]
        if status == 0:
            raise SystemExit("a receive that nobody served succeeded")
    print(f"{(MEMBERS - 1) * RECEIVES} receives of {MEMBERS - 1} processes have ended")


def flood(path):
    clients = [connect(path) for _ in range(CLIENTS)]
    wrong = [COMMAND.pack(k, 0x77, 1, 0, 0, 0, 0, 0, raw_client.ALL_REDUCE, 0, 0, 0, 0, 0)
             for k in range(ENTRIES)]
    for client in clients:
        at = COMMANDS
        client.queue[at:at + ENTRIES * COMMAND.size] = b"".join(wrong)
    deadline = time.monotonic() + 60
    while any(client.word(raw_client.COMPLETION_TAIL) < EACH for client in clients):
        for client in clients:
            done = client.word(raw_client.COMPLETION_TAIL)
            client.set_word(raw_client.COMPLETION_HEAD, done)
            client.set_word(raw_client.COMMAND_TAIL, min(done + ENTRIES, EACH))
            client.ring_doorbell()
        if time.monotonic() > deadline:
            raise SystemExit("after 60 s not all is refused")
    for client in clients:
        request, _, status = struct.unpack_from("=QQI", client.queue, COMPLETIONS)
        if status == 0:
            raise SystemExit(f"request {request} succeeded")
    print(f"{CLIENTS * EACH} commands of {CLIENTS} clients were refused")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
