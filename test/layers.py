#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Who may include whom: checks every #include of lib/, app/ and drivers/ against the table of
layers in doc/architecture.md.

A library may include itself and what its row names. What DPDK, the system and CUDA offer is
narrower still, since it decides what can run in the simulator, in the client and without a GPU:
see RULES. `layers.py --self-test` shows that each rule fails on a line that breaks it.
"""

import argparse
import pathlib
import re
import sys

from sources import ROOT, own_files

PAGE = "doc/architecture.md"
ROW = re.compile(r"^\| `(\w+)` \|.*\|([\w, ]*)\|$", re.MULTILINE)


def read_table(text):
    """The page's table of layers: library -> the libraries whose headers it may include, besides
    its own."""
    layers = text.split("\n## Layers\n", 1)[1].split("\n## ", 1)[0]
    table = {name: row.replace(",", " ").split() for name, row in ROW.findall(layers)}
    unknown = {other for row in table.values() for other in row} - set(table)
    if not table or unknown:
        sys.exit(f"{PAGE}: {len(table)} libraries in the table of layers, and rows name "
                 f"{sorted(unknown) or 'no other'}: a row is | `library` | what it is | names |")
    return table


TABLE = read_table((ROOT / PAGE).read_text(encoding="utf-8"))

# library: the DPDK headers that it may include. Libraries that are not here may include none.
PACKETS = ["rte_mbuf.h", "rte_mempool.h"]
DPDK_ALLOWED = {
    "transport": PACKETS,
    "ring": PACKETS,
    "sim": PACKETS,
    "port": ["*"],
    "lane": ["*"],
    "group": ["*"],
    "embedded": ["*"],
    "operate": ["rte_telemetry.h", "rte_pdump.h", "rte_errno.h"],
}
# folder of a library: DPDK headers beside what its library may include.
DPDK_FOLDERS = {
    "lib/reduce/gpu/": ["rte_gpudev.h", "rte_malloc.h", "rte_errno.h"],
}
# Folders that meet a device of their own, with its clocks and threads.
DEVICE_FOLDERS = ("lib/reduce/gpu/", "lib/reduce/cuda/")
# Only port and lane drive ports, whatever the row above allows.
PORT_HEADERS = re.compile(r"rte_(ethdev|ethdev_driver|flow|eth_\w+|pmd_\w+)\.h$")
PORT_LIBRARIES = ("port", "lane")
PORTS_ALONE = "lib/port and lib/lane alone drive ports"

# Time is a parameter and waiting is the lane loop's: no clock, socket or thread below it, so that
# the simulator runs the same code in virtual time.
SANS_IO = ["base", "wire", "transport", "reduce", "ring", "sim"]
SANS_IO_HEADERS = re.compile(
    r"^(chrono|ctime|time\.h|sys/time\.h|thread|mutex|shared_mutex|condition_variable|future|"
    r"pthread\.h|sys/socket\.h|netdb\.h|sys/epoll\.h|poll\.h|sys/select\.h|"
    r"sys/eventfd\.h|sys/timerfd\.h|unistd\.h|rte_cycles\.h|rte_ethdev\.h)$"
)
SANS_IO_CALLS = re.compile(
    r"\b(clock_gettime|gettimeofday|nanosleep|usleep|rte_rdtsc\w*|__rdtsc\w*|"
    r"rte_get_\w+_cycles|rte_delay_\w+|pthread_create)\s*\("
)

# Its account of cycles is seen by people only: no behaviour follows from it.
SANS_IO_EXEMPT = ("lib/base/profile.h",)

CUDA_HEADERS = re.compile(r"^(cuda|nvrtc|nccl|gdrapi|rte_gpudev_cuda)[\w./]*$|\.cuh$")
CUDA_FOLDERS = ("lib/gpu/", "lib/reduce/cuda/", "drivers/gpu/cuda/", "test/gpu/")

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
COMMENT = re.compile(r"//.*")
ENDINGS = {".h", ".cc", ".cu", ".cuh"}


def check(path, text):
    """Yields (line number, what is wrong) for the source `path`, which is relative to the root."""
    name = path.as_posix()
    library = path.parts[1] if path.parts[0] == "lib" and len(path.parts) > 2 else None
    if library is not None and library not in TABLE:
        yield 1, f"lib/{library} is not in the table of layers of {PAGE}"
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield from ((number, e) for e in check_include(name, library, *match.groups()))
        elif name in SANS_IO_EXEMPT:
            continue
        elif (library in SANS_IO and not name.startswith(DEVICE_FOLDERS)
              and SANS_IO_CALLS.search(COMMENT.sub("", line))):
            call = SANS_IO_CALLS.search(line).group(1)
            yield number, f"lib/{library} calls {call}: time is a parameter there"


def check_include(name, library, quoted, angled):
    header = quoted or angled
    base = header.rsplit("/", 1)[-1]
    if CUDA_HEADERS.search(header) and not name.startswith(CUDA_FOLDERS):
        yield f"{header}: CUDA appears in {' and '.join(CUDA_FOLDERS)} alone"
    if library is None:
        if PORT_HEADERS.match(base):
            yield f"{header}: applications compose; {PORTS_ALONE}"
        return
    if quoted:
        target = header.split("/", 1)[0]
        if target in TABLE and target != library and target not in TABLE[library]:
            allowed = ", ".join(TABLE[library]) or "no other library"
            yield f"{header}: lib/{library} may include {allowed}"
        if target.startswith(("app", "test")) or ".." in header.split("/"):
            yield f"{header}: a library includes by its path below lib/"
    if base.startswith("rte_"):
        if PORT_HEADERS.match(base) and library not in PORT_LIBRARIES:
            yield f"{header}: {PORTS_ALONE}"
        allowed = list(DPDK_ALLOWED.get(library, []))
        for folder, headers in DPDK_FOLDERS.items():
            allowed += headers if name.startswith(folder) else []
        if "*" not in allowed and base not in allowed:
            yield f"{header}: of DPDK, lib/{library} may include {', '.join(allowed) or 'nothing'}"
    if (library in SANS_IO and SANS_IO_HEADERS.match(header)
            and not name.startswith(DEVICE_FOLDERS)):
        yield f"{header}: no clock, socket or thread in lib/{library}"


def check_tree():
    failures = 0
    sources = [p for p in own_files() if p.suffix in ENDINGS and
               p.parts[0] in ("lib", "app", "drivers")]
    for path in sources:
        text = (ROOT / path).read_text(encoding="utf-8")
        for number, wrong in check(path, text):
            print(f"{path}:{number}: {wrong}")
            failures += 1
    print(f"{len(sources)} sources, {failures} breaches of the layer table")
    return failures == 0 and len(sources) > 0


# Each line breaks a rule (or keeps it) where it stands.
SELF_TEST = [
    ("lib/base/x.h", '#include "wire/packet.h"', False),
    ("lib/base/x.h", "#include <rte_mbuf.h>", False),
    ("lib/wire/x.cc", "#include <rte_byteorder.h>", False),
    ("lib/wire/x.cc", '#include "base/types.h"', True),
    ("lib/wire/x.cc", '#include "transport/sender.h"', False),
    ("lib/transport/x.cc", "#include <chrono>", False),
    ("lib/transport/x.cc", "#include <sys/socket.h>", False),
    ("lib/transport/x.cc", "#include <thread>", False),
    ("lib/transport/x.cc", "#include <rte_mbuf.h>", True),
    ("lib/transport/x.cc", "#include <rte_ethdev.h>", False),
    ("lib/transport/x.cc", '#include "reduce/backend.h"', False),
    ("lib/ring/x.cc", '#include "reduce/backend.h"', True),
    ("lib/ring/x.cc", '#include "lane/lane.h"', False),
    ("lib/ring/x.cc", "const auto now = rte_rdtsc();", False),
    ("lib/ring/x.cc", "// clock_gettime() is the lane's business.", True),
    ("lib/ring/x.cc", "clock_gettime(CLOCK_MONOTONIC, &t);", False),
    ("lib/reduce/x.cc", "#include <cuda_runtime.h>", False),
    ("lib/reduce/cuda/x.cc", "#include <cuda_runtime.h>", True),
    ("lib/reduce/x.cc", "#include <rte_gpudev.h>", False),
    ("lib/reduce/gpu/x.cc", "#include <rte_gpudev.h>", True),
    ("lib/gpu/x.cc", "#include <cuda.h>", True),
    ("lib/client/x.cc", "#include <cuda.h>", False),
    ("lib/client/x.cc", '#include "gpu/cuda_device.h"', True),
    ("lib/ipc/x.cc", '#include "gpu/cuda_device.h"', False),
    ("lib/reduce/gpu/x.cc", "#include <rte_mbuf.h>", False),
    ("lib/reduce/gpu/x.cc", "#include <thread>", True),
    ("lib/reduce/gpu/x.cc", "#include <cuda_runtime.h>", False),
    ("lib/client/x.cc", "#include <rte_memcpy.h>", False),
    ("lib/client/x.cc", '#include "ipc/command_queue.h"', True),
    ("lib/client/x.cc", '#include "lane/messages.h"', False),
    ("lib/client/x.cc", '#include "../ipc/command_queue.h"', False),
    ("lib/config/x.cc", "#include <rte_eal.h>", False),
    ("lib/ipc/x.cc", "#include <rte_ring.h>", False),
    ("lib/host/x.cc", '#include "host/isolation.h"', True),
    ("lib/host/x.cc", '#include "config/load.h"', False),
    ("lib/host/x.cc", "#include <rte_eal.h>", False),
    ("lib/sim/x.cc", '#include "ring/shard.h"', True),
    ("lib/sim/x.cc", "#include <chrono>", False),
    ("lib/ring/x.cc", '#include "sim/world.h"', False),
    ("lib/lane/x.cc", "#include <rte_ethdev.h>", True),
    ("lib/port/x.cc", "#include <rte_ethdev.h>", True),
    ("lib/port/x.cc", '#include "lane/lane.h"', False),
    ("lib/lane/x.cc", '#include "group/manager.h"', False),
    ("lib/group/x.cc", "#include <rte_ethdev.h>", False),
    ("lib/group/x.cc", '#include "lane/messages.h"', True),
    ("lib/operate/x.cc", "#include <rte_telemetry.h>", True),
    ("lib/operate/x.cc", '#include "group/manager.h"', False),
    ("lib/novel/x.cc", "int x;", False),
    ("app/gradwired/main.cc", "#include <rte_ethdev.h>", False),
    ("app/gradwired/main.cc", '#include "port/port.h"', True),
    ("app/gradwired/main.cc", "#include <cuda.h>", False),
]


def self_test():
    wrong = 0
    for name, line, fine in SELF_TEST:
        found = list(check(pathlib.PurePosixPath(name), line))
        if (not found) != fine:
            print(f"{name}: {line!r} should {'pass' if fine else 'fail'}, found {found}")
            wrong += 1
    print(f"{len(SELF_TEST)} cases, {wrong} wrong")
    return wrong == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--self-test", action="store_true",
                        help="check the check on lines that break each rule")
    arguments = parser.parse_args()
    sys.exit(0 if (self_test() if arguments.self_test else check_tree()) else 1)
