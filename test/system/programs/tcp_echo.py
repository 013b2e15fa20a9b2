#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A connection of the kernel's, like an SSH session in which somebody types: tcp_echo.py serve
ADDRESS PORT, and tcp_echo.py talk ADDRESS PORT --seconds S, which sends a line every 5 ms over one
connection and fails if an answer takes longer than --patience."""

import argparse
import pathlib
import socket
import sys
import threading
import time


def answer(connection):
    with connection:
        while data := connection.recv(4096):
            connection.sendall(data)


def serve(address, port):
    with socket.create_server((address, port)) as listener:
        print("listening", flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()


def talk(address, port, seconds, patience, until):
    answers, slowest = 0, 0.0
    with socket.create_connection((address, port), timeout=patience) as connection:
        # From here on: on a busy machine connecting alone may take as long.
        deadline = time.monotonic() + seconds
        connection.settimeout(patience)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print("connected", flush=True)
        while answers == 0 or (time.monotonic() < deadline and not (until and until.exists())):
            line = b"%d\n" % answers
            begin = time.monotonic()
            connection.sendall(line)
            got = b""
            while len(got) < len(line):
                data = connection.recv(4096)
                if not data:
                    raise ConnectionError("the server hung up")
                got += data
            if got != line:
                raise ConnectionError(f"sent {line!r}, got {got!r}")
            slowest = max(slowest, time.monotonic() - begin)
            answers += 1
            time.sleep(0.005)
    print(f"{answers} answers, the slowest after {slowest * 1e3:.1f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["serve", "talk"])
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--patience", type=float, default=20)
    parser.add_argument("--until", type=pathlib.Path, help="ends when this file is there")
    arguments = parser.parse_args()
    if arguments.role == "serve":
        serve(arguments.address, arguments.port)
    try:
        talk(arguments.address, arguments.port, arguments.seconds, arguments.patience,
             arguments.until)
    except OSError as error:
        print(f"the connection is dead: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
