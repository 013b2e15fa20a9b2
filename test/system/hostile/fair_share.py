#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""fair_share.py SOCKET: nobody (uid 65534) takes of a daemon what it gives to one user: joins with
made-up tables of 1,024 ranks on eight connections, all the time; groups of a thousand hosts that do
not exist; gradient memory. Beside that root's requests are answered, its groups form, and no round
of the control thread has more steps than it should. The daemon has limits.user_memory_mib = 64, and
10.77.0.2 to 4 and 12 to 14 answer ARP. How long root's requests take is printed, and decides
nothing."""

import fcntl
import json
import os
import secrets
import signal
import socket
import sys
import time

from crc32c import crc32c
from raw_client import (ALLOCATE, HEADER, JOIN, JOIN_REQUEST, MAGIC, STATUS, VERSION, RawClient,
                        Refused)

NOBODY = 65534
CHECKSUM, ADDRESS, ADDRESS_BYTES = 36, 40, 24  # in an entry of a table
# Nobody's messages in a round, and one more; addresses that are looked at; root's own requests; the
# groups and clients there are. doc/operations.md, "What users can take".
STEPS_MOST = 4096 + 3080 + 2 * 2048 + 1024
# What a user may take at once, and by the second.
STEPS_SAVED, STEPS_OF_SECOND = 1_000_000, 100_000


def sealed(out):
    """An entry with the checksum of its bytes."""
    out[CHECKSUM:CHECKSUM + 4] = bytes(4)
    out[CHECKSUM:CHECKSUM + 4] = crc32c(out).to_bytes(4, "little")
    return bytes(out)


def changed(own, ip, prefix=None):
    """Another daemon's entry, without its checksum."""
    out = bytearray(own)
    out[8:16] = secrets.token_bytes(8)
    out[ADDRESS:ADDRESS + 4] = bytes(ip)
    if prefix is not None:
        out[ADDRESS + 17] = prefix
    return out


def entry(own, ip):
    return sealed(changed(own, ip))


def made_up(own):
    """1,024 ranks of seven links each that lead nowhere, of which no two ranks look alike."""
    table = []
    for rank in range(1023):
        out = changed(own, [10, 77, 0, 2 + rank % 250], 16 + rank % 8)
        host = out[ADDRESS:ADDRESS + ADDRESS_BYTES]
        out[28:30] = (8).to_bytes(2, "little")
        for i in range(7):
            ip = bytes([0xfd, i]) + bytes(12) + rank.to_bytes(2, "big")
            link = ip + bytes([6, 128, 0, 1]) + bytes(4)  # family, prefix, routed, one peer; rail
            out[ADDRESS + i * ADDRESS_BYTES:ADDRESS + (i + 1) * ADDRESS_BYTES] = link
        out[ADDRESS + 7 * ADDRESS_BYTES:ADDRESS + 8 * ADDRESS_BYTES] = host
        table.append(sealed(out))
    return table + [own]


def join_body(rank, table, timeout_ms, group_id=None):
    group_id = secrets.randbits(62) + 1 if group_id is None else group_id
    request = JOIN_REQUEST.pack(group_id, 1, rank, len(table), 0, 1, timeout_ms, 0, 0)
    return request + b"".join(table)


def sealed_file(body):
    fd = os.memfd_create("join", os.MFD_ALLOW_SEALING)
    os.write(fd, body)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    return fd


def flood(clients, fd, answered=lambda: None):
    """Joins on all of them as fast as the daemon takes it, for ever."""
    for client in clients:
        client.socket.setblocking(False)
    sent = 0
    while True:
        idle = True
        for client in clients:
            try:
                while True:
                    sent += 1
                    header = HEADER.pack(MAGIC, VERSION, JOIN, sent % 2**31 + 1, HEADER.size, 0, 0)
                    socket.send_fds(client.socket, [header], [fd])
                    idle = False
            except BlockingIOError:
                pass
            try:
                while True:
                    data, *_ = socket.recv_fds(client.socket, 256 * 1024, 8)
                    assert data, "the daemon hung up"
                    idle = False
                    answered()
            except BlockingIOError:
                pass
        if idle:
            time.sleep(0.001)


def send_join(client, body):
    """A table this long goes in a sealed memfd."""
    if len(body) < 120_000:
        return client.send(JOIN, body)
    fd = sealed_file(body)
    request = client.send(JOIN, fds=[fd])
    os.close(fd)
    return request


def refusal(call):
    try:
        call()
    except Refused as refused:
        return refused.args[1]
    return "(not refused)"


def nobody(path, tell):
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    held = []
    for group in range(2):
        client = RawClient(path).open()
        own = client.describe()
        dead = [entry(own, [10, 77, 1 + 8 * group + i // 200, 1 + i % 200]) for i in range(1000)]
        send_join(client, join_body(0, [own] + dead, 120_000))
        held.append(client)
    client = RawClient(path).open()
    client.allocate(62 << 20)
    held.append(client)
    client = RawClient(path).open()
    text = refusal(lambda: client.allocate(4 << 20))
    assert "limits.user_memory_mib" in text and "user 65534" in text, text
    print(f"nobody's memory: {text}", flush=True)

    own = client.describe()
    answers = 0

    def answered():
        nonlocal answers
        answers += 1
        if answers == 50:
            os.write(tell, b"floods")

    flood([client] + [RawClient(path).open() for _ in range(7)],
          sealed_file(join_body(1023, made_up(own), 1)), answered)


def status(path):
    client = RawClient(path)
    text, fds = client.call(STATUS)
    for fd in fds:
        with open(fd, "rb") as file:
            text = file.read()
    client.close()
    return json.loads(text)


def requests(path):
    """Root's, each once. @return (what, ms) of each."""
    took = []

    def timed(what, call):
        began = time.monotonic()
        result = call()
        took.append((what, (time.monotonic() - began) * 1000))
        return result

    timed("status", lambda: status(path))
    client = RawClient(path)
    timed("open", client.open)
    own = timed("describe", client.describe)
    _, size, fd = timed("allocate", lambda: client.allocate(2 << 20))
    assert size == 2 << 20, size
    os.close(fd)
    timed("join", lambda: client.join(secrets.randbits(62) + 1, 0, [own]))
    client.close()
    return took


def forms(path, last):
    """A group of four, whose hosts answer ARP and have no daemon: its lanes start."""
    client = RawClient(path).open()
    own = client.describe()
    group_id = secrets.randbits(62) + 1
    table = [own] + [entry(own, [10, 77, 0, x]) for x in last]
    began = time.monotonic()
    client.send(JOIN, join_body(0, table, 60_000, group_id))
    while True:
        state = [group["state"] for group in status(path)["groups"]
                 if group["group_id"] == f"{group_id:016x}"]
        assert state, client.receive()[2].rstrip(b"\0").decode()
        if state != ["resolving"]:
            break
        time.sleep(0.05)
    assert state == ["forming"], state
    client.close()
    return (time.monotonic() - began) * 1000


def by_the_second(path, began):
    """Nobody uses up its share, gets no more than that, and root does not wait. A daemon that
    takes ten times as long for a step, as one with sanitizers, never comes to the end of a share:
    then the bound is kept without a wait."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        users = {user["uid"]: user for user in status(path)["daemon"]["users"]}
        if users[NOBODY]["control_waits"] > 0:
            break
        time.sleep(0.1)
    for what, ms in requests(path):
        print(f"beside nobody that waits: {what} took {ms:.1f} ms", flush=True)
    users = {user["uid"]: user for user in status(path)["daemon"]["users"]}
    seconds = time.monotonic() - began
    print(f"in {seconds:.1f} s: {users}", flush=True)
    most = STEPS_SAVED + STEPS_OF_SECOND * seconds + STEPS_MOST
    assert users[NOBODY]["control_steps"] <= most, f"{users[NOBODY]}, at most {most} allowed"
    assert users[0]["control_waits"] == 0, users[0]


def main():
    path = sys.argv[1]
    for what, ms in requests(path):
        print(f"alone: {what} took {ms:.1f} ms", flush=True)
    print(f"alone: a group of four resolved in {forms(path, [2, 3, 4]):.0f} ms", flush=True)
    heard, tell = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(heard)
        try:
            nobody(path, tell)
        finally:
            sys.stdout.flush()
            os._exit(1)
    os.close(tell)
    try:
        assert os.read(heard, 100) == b"floods", "nobody's part failed"
        for _ in range(3):
            for what, ms in requests(path):
                print(f"beside the flood: {what} took {ms:.1f} ms", flush=True)
        ms = forms(path, [12, 13, 14])
        print(f"beside it: a group of four resolved in {ms:.0f} ms", flush=True)
        daemon = status(path)["daemon"]
        by_the_second(path, began)
        steps, us = daemon["control_round_steps_max"], daemon["control_round_us_max"]
        print(f"longest round of the control thread: {steps} steps, {us} us; "
              f"{daemon['log_lines_dropped']} lines of the log dropped", flush=True)
        assert steps <= STEPS_MOST, f"a round of {steps} steps, at most {STEPS_MOST} allowed"
        # One made-up table alone has as many.
        assert steps >= 3080, f"the longest round has {steps} steps: where is the flood?"
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "nobody has ended"
    finally:
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
