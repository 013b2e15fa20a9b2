#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a link lets through, for scripts/lib/shaped_link.sh.

usage: udp_blast.py send ADDRESS SECONDS    sends UDP datagrams to the address, as fast as it can
       udp_blast.py count ADDRESS DEVICE    takes them, and prints the Gbit/s that the device
                                            receives in a second. The kernel sends many at once and
                                            counts their headers once: of 1 Gbit/s 0.97
       udp_blast.py watch DEVICE FILE       until it is ended: writes into the file the most Gbit/s
                                            that the device received in any second
"""
import os
import pathlib
import socket
import struct
import sys
import time

PORT = 4790
PAYLOAD = 1472  # what an MTU of 1,500 carries
AT_ONCE = 40  # datagrams of a system call, which the kernel cuts: 64 KB at most
UDP_SEGMENT = 103  # linux/udp.h


def send(address, seconds):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.connect((address, PORT))
        segments = [(socket.SOL_UDP, UDP_SEGMENT, struct.pack("H", PAYLOAD))]
        payload = bytes(PAYLOAD * AT_ONCE)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                udp.sendmsg([payload], segments)
            except (ConnectionRefusedError, BlockingIOError):
                time.sleep(0.01)  # nobody listens yet
            except OSError:
                time.sleep(0.001)  # the bucket's queue is full


def received(device):
    return int(pathlib.Path(f"/sys/class/net/{device}/statistics/rx_bytes").read_text("ascii"))


def gbit_of(device, seconds):
    begin, before = time.monotonic(), received(device)
    time.sleep(seconds)
    after = received(device)
    return (after - before) * 8 / (time.monotonic() - begin) / 1e9


def count(address, device):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind((address, PORT))  # What does not fit into its buffer is dropped.
        udp.settimeout(10)
        udp.recv(PAYLOAD)
        time.sleep(0.3)  # what the bucket had saved is gone
        print(f"{gbit_of(device, 1):.3f}")


def watch(device, path):
    """Windows of a second that begin a tenth of a second apart; before the first, nothing came."""
    most, samples = -1.0, []
    while os.getppid() != 1:
        samples.append((time.monotonic(), received(device)))
        del samples[:-11]
        (begin, before), (end, after) = samples[0], samples[-1]
        gbit = (after - before) * 8 / max(1.0, end - begin) / 1e9
        if gbit > most:
            most = gbit
            temporary = pathlib.Path(path + ".part")
            temporary.write_text(f"{most:.3f}\n", "ascii")
            temporary.rename(path)
        time.sleep(0.1)


if __name__ == "__main__":
    try:
        match sys.argv[1:]:
            case ["send", address, seconds]:
                send(address, float(seconds))
            case ["count", address, device]:
                count(address, device)
            case ["watch", device, path]:
                watch(device, path)
            case _:
                sys.exit(__doc__)
    except TimeoutError:
        sys.exit("no datagram came in 10 s")
