#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""smaps.py --pid PID SOCKET: gradient memory lies in hugepages, as the kernel says in the client's
smaps and in the daemon's. With --heap-on-purpose the same check looks at a buffer on the heap, and
must find it out."""

import argparse
import re
import sys

import numpy as np

import gradwire

HUGEPAGE_KIB = 2048
HEADER = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ (\S+) (\d+) *(.*)$")


def mappings(pid):
    """@return dicts with start, end, file (device and inode), name and kib (KernelPageSize)."""
    found = []
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as smaps:
        for line in smaps:
            header = HEADER.match(line)
            if header:
                found.append({"start": int(header[1], 16), "end": int(header[2], 16),
                              "file": (header[3], header[4]), "name": header[5], "kib": 0})
            elif line.startswith("KernelPageSize:"):
                found[-1]["kib"] = int(line.split()[1])
    return found


def find_faults(address, size, maps):
    """@return what of [address, address + size) is not in hugepages, as texts."""
    faults = []
    covered = 0
    for m in maps:
        overlap = min(m["end"], address + size) - max(m["start"], address)
        if overlap <= 0:
            continue
        covered += overlap
        if m["kib"] != HUGEPAGE_KIB:
            faults.append(f"{overlap} bytes at {max(m['start'], address):#x} are on pages of "
                          f"{m['kib']} KiB ({m['name'] or 'anonymous'})")
    if covered != size:
        faults.append(f"{size - covered} bytes are not mapped")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("socket")
    parser.add_argument("--pid", type=int, help="of the daemon")
    parser.add_argument("--heap-on-purpose", action="store_true")
    arguments = parser.parse_args()

    if arguments.heap_on_purpose:
        heap = np.zeros(8 << 20, np.uint8)
        faults = find_faults(heap.ctypes.data, heap.nbytes, mappings("self"))
        print("\n".join(faults) or "a buffer on the heap passed as hugepages")
        return 0 if faults else 1

    with gradwire.Client(arguments.socket) as client:
        memory = client.allocate(6 << 20).array("uint8")
        memory[:] = 1
        address = memory.ctypes.data
        own = mappings("self")
        faults = find_faults(address, memory.nbytes, own)
        file = next((m["file"] for m in own if m["start"] <= address < m["end"]), None)
        theirs = [m for m in mappings(arguments.pid) if m["file"] == file]
        if not theirs:
            faults.append(f"the daemon, process {arguments.pid}, does not map the client's memory")
        faults += [f"daemon: {m['name']} is on pages of {m['kib']} KiB" for m in theirs
                   if m["kib"] != HUGEPAGE_KIB]
    print("\n".join(faults) or
          f"{memory.nbytes >> 20} MiB on pages of 2 MiB, for the client and the daemon")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
