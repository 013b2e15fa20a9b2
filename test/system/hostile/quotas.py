#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""quotas.py WHAT SOCKET: takes of a daemon what it gives to one user, and prints what it says then.

  hold N   opens N clients with a group, and tries one more; keeps them until it is ended
  silent   connects, says nothing and waits to be hung up
  groups   a group of one rank, then one more
"""

import random
import signal
import socket
import sys

import raw_client


def last_words(path):
    """@return what the daemon says to a connection that says nothing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as idle:
        idle.settimeout(120)
        idle.connect(path)
        data = idle.recv(65536)
        assert idle.recv(65536) == b"", "it goes on"
    return data[raw_client.HEADER.size:].rstrip(b"\0").decode()


def hold(path, count):
    clients = [raw_client.RawClient(path).open() for _ in range(int(count))]
    clients[0].join(random.getrandbits(63), 0, [clients[0].describe()])
    print(f"{len(clients)} clients; one more: {last_words(path)}", flush=True)
    signal.pause()


def silent(path):
    print(last_words(path))


def groups(path):
    client = raw_client.RawClient(path).open()
    info = client.describe()
    for _ in range(2):
        try:
            client.join(random.getrandbits(63), 0, [info])
            print("formed")
        except raw_client.Refused as refused:
            print(refused.args[1])


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
