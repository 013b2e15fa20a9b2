#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""lingering.py SOCKET: nobody (uid 65534) gives the daemon the last descriptors of TCP sockets
whose close takes ten minutes (SO_LINGER), in every way in which a daemon comes to close what it
got: in a message that it takes, in one with too many descriptors, in one that it never receives.
Root's requests are answered all the time. The sockets are at loopback."""

import contextlib
import os
import signal
import socket
import struct
import sys
import time

from fair_share import NOBODY, requests
from raw_client import DESCRIBE, HEADER, MAGIC, VERSION, RawClient

LINGER_S = 600


def slow_to_close():
    """A socket with unsent data, and the end where nobody reads it."""
    listener = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(listener.getsockname())
    reader, _ = listener.accept()
    listener.close()
    sender.setblocking(False)
    try:
        while True:
            sender.send(bytes(65536))
    except BlockingIOError:
        pass
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_S))
    return sender, reader


def threads_of(pid):
    """The states of a process's threads."""
    states = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8") as file:
                states.append(file.read().rpartition(")")[2].split()[0])
        except (FileNotFoundError, ProcessLookupError):
            pass  # it ended
    return states


@contextlib.contextmanager
def stopped(client):
    """The daemon stands still meanwhile: what is closed here is then never the last one, which
    would wait here."""
    pid, _, _ = struct.unpack("iII", client.socket.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII")))
    os.kill(pid, signal.SIGSTOP)
    try:
        deadline = time.monotonic() + 30
        while any(state != "T" for state in threads_of(pid)):
            assert time.monotonic() < deadline, f"{pid} does not stop: {threads_of(pid)}"
            time.sleep(0.001)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def give(client, way, sender):
    header = HEADER.pack(MAGIC, VERSION, DESCRIBE, 5, HEADER.size, 0, 0)
    others = []
    if way == "unreceived":
        socket.send_fds(client.socket, [bytes(HEADER.size)], [])
    elif way == "too many":
        others = [os.open("/dev/null", os.O_RDONLY) for _ in range(6)]
    socket.send_fds(client.socket, [header], others + [sender.fileno()])
    sender.close()
    for fd in others:
        os.close(fd)


def main():
    path = sys.argv[1]
    kept = []
    for way in ("taken", "too many", "unreceived"):
        sender, reader = slow_to_close()
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
        client = RawClient(path)
        os.seteuid(0)
        os.setegid(0)
        with stopped(client):
            give(client, way, sender)
        kept.append((client, reader))  # The connection stays open.
        took = max(requests(path), key=lambda one: one[1])
        print(f"{way}: root's longest request was {took[0]}, {took[1]:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
