# SPDX-License-Identifier: BSD-3-Clause
"""A client without the library: it speaks the control socket (lib/ipc/control_messages.h) and the
command queue (lib/ipc/command_queue.h) byte by byte, so that it can say what no honest client
says."""

import mmap
import os
import random
import secrets
import select
import socket
import struct
import threading
import time

MAGIC, VERSION, HEADER = 0x47574331, 3, struct.Struct("=IHHIIII")
OPEN, ALLOCATE, FREE, DESCRIBE, JOIN, LEAVE, ABORT, STATUS = range(1, 9)
GROUP_ABORTED, CUT_OFF = 100, 101
JOIN_REQUEST = struct.Struct("=QIHHHHIII")
COMMAND = struct.Struct("=QQQQQIIIBBBBII")
ENTRIES = 1024
COMMAND_TAIL, COMMAND_HEAD, COMPLETION_TAIL, COMPLETION_HEAD = 64, 128, 192, 256
DAEMON_SLEEPS, COMMANDS, COMPLETION_BYTES = 320, 448, 256
COMPLETIONS = COMMANDS + ENTRIES * COMMAND.size
ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, BARRIER = 1, 2, 3, 4, 5, 11
GATHER, SCATTER, ALL_TO_ALL, SEND, RECV = 6, 7, 8, 9, 10
HAS_SPLITS = 1  # a flag of a command
MASK = 0xffffffff


class Refused(Exception):
    """The daemon answered with an error: (code, text)."""


class Closed(Exception):
    """The daemon hung up. Its last words are the argument."""


class RawClient:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(30)
        self.socket.connect(path)
        self.next_id = 1
        self.events = []
        self.queue = None

    def send(self, kind, body=b"", fds=(), magic=MAGIC, version=VERSION, size=None):
        """Sends one message, right or wrong, and returns its id."""
        self.next_id += 1
        size = HEADER.size + len(body) if size is None else size
        header = HEADER.pack(magic, version, kind, self.next_id, size, 0, 0)
        self.send_bytes(header + body, fds)
        return self.next_id

    def send_bytes(self, data, fds=()):
        try:
            socket.send_fds(self.socket, [data], list(fds))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed(self.last_words()) from error

    def last_words(self):
        return " ".join(text for _, text in self.events)

    def receive(self):
        """@return (id, error code, body, descriptors) of the next answer; keeps events."""
        reset = False
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self.socket, 256 * 1024, 8)
            except ConnectionResetError:
                if not reset:  # It is told once, before the last message, which says why.
                    reset = True
                    continue
                data = b""
            if not data:
                raise Closed(self.last_words())
            _, _, kind, request, _, code, _ = HEADER.unpack_from(data)
            body = data[HEADER.size:]
            if kind in (GROUP_ABORTED, CUT_OFF):
                text = body[8:] if kind == GROUP_ABORTED else body
                self.events.append((kind, text.rstrip(b"\0").decode()))
                continue
            return request, code, body, fds

    def call(self, kind, body=b"", **wrong):
        request = self.send(kind, body, **wrong)
        while True:
            answered, code, answer, fds = self.receive()
            if answered == request or (wrong and code):
                break
        if code:
            raise Refused(code, answer.rstrip(b"\0").decode())
        return answer, fds

    def open(self):
        answer, fds = self.call(OPEN, struct.pack("=II", 1, 0))
        self.queue_fd, self.doorbell, self.completion_fd = fds
        self.queue_bytes = struct.unpack("=QIIIiQ", answer)[5]
        self.queue = mmap.mmap(self.queue_fd, self.queue_bytes)
        # Indexes are written as one word: struct.pack_into() clears the bytes first, and a daemon
        # that looks at that moment sees an index that cannot be.
        self.words = memoryview(self.queue).cast("I")
        return self

    def close(self):
        """As a process that ends: the daemon counts a client until nobody has its descriptors."""
        self.socket.close()
        if hasattr(self, "words"):
            self.words.release()
            self.queue.close()
            for fd in (self.queue_fd, self.doorbell, self.completion_fd):
                os.close(fd)

    def allocate(self, size):
        """@return (handle, bytes, descriptor)."""
        answer, fds = self.call(ALLOCATE, struct.pack("=Q", size))
        got, handle, _ = struct.unpack("=QIi", answer)
        return handle, got, fds[0]

    def describe(self):
        return self.call(DESCRIBE)[0]

    def join(self, group_id, rank, infos):
        body = JOIN_REQUEST.pack(group_id, 1, rank, len(infos), 0, 1, 20_000, 0, 0)
        return struct.unpack_from("=Q", self.call(JOIN, body + b"".join(infos))[0])[0]

    # --- the command queue -----------------------------------------------------------------------

    def word(self, at):
        return self.words[at // 4]

    def set_word(self, at, value):
        self.words[at // 4] = value & MASK

    def ring_doorbell(self):
        os.eventfd_write(self.doorbell, 1)

    def push(self, request, group, count, input_offset=0, output_offset=0, input_memory=0,
             output_memory=None, tag=0, kind=ALL_REDUCE, datatype=0, redop=0, flags=0,
             event=0, root=0):
        tail = self.word(COMMAND_TAIL)
        output_memory = input_memory if output_memory is None else output_memory
        COMMAND.pack_into(self.queue, COMMANDS + tail % ENTRIES * COMMAND.size, request, group,
                          count, input_offset, output_offset, input_memory, output_memory, tag,
                          kind, datatype, redop, flags, event, root)
        self.set_word(COMMAND_TAIL, tail + 1)
        self.ring_doorbell()

    def completion(self, seconds=20):
        """@return (request, status, text) of the next completion."""
        deadline = time.monotonic() + seconds
        head = self.word(COMPLETION_HEAD)
        while self.word(COMPLETION_TAIL) == head:
            if time.monotonic() > deadline:
                raise SystemExit("no completion came")
            time.sleep(0.001)
        at = COMPLETIONS + head % ENTRIES * COMPLETION_BYTES
        request, _, status, _ = struct.unpack_from("=QQII", self.queue, at)
        text = self.queue[at + 24:at + COMPLETION_BYTES].split(b"\0", 1)[0].decode()
        self.set_word(COMPLETION_HEAD, head + 1)
        return request, status, text

    def refused_command(self, what, says, *arguments, **named):
        """Pushes a command and wants it refused with a text that has `says`."""
        request = random.getrandbits(63)
        self.push(request, *arguments, **named)
        answered, status, text = self.completion()
        if answered != request or status == 0 or says not in text:
            raise SystemExit(f"{what}: answered with {status} \"{text}\", not \"{says}\"")
        print(f"  {what}: {text}", flush=True)

    def wait_closed(self, seconds=20):
        """@return what the daemon said before it hung up."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if select.select([self.socket], [], [], 0.5)[0]:
                try:
                    self.receive()
                except Closed as closed:
                    return str(closed)
        raise SystemExit("the daemon did not hang up")


def form(sockets):
    """@return (clients, group handles), of a group over both daemons."""
    clients = [RawClient(path).open() for path in sockets]
    infos = [client.describe() for client in clients]
    group_id = secrets.randbits(63) + 1
    handles = [None, None]

    def join(rank):
        handles[rank] = clients[rank].join(group_id, rank, infos)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if None in handles:
        raise SystemExit("the group was not formed")
    return clients, handles
