#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Who may include whom: checks every #include of lib/, app/ and drivers/, and what each library's
meson.build links, against the table of layers in doc/architecture.md.

The table says which libraries and which headers of DPDK a library may include, and whether it runs
in virtual time. Here stand the rules that are not one library's. `layers.py --self-test` shows that
each rule fails on a line that breaks it.
"""

import argparse
import pathlib
import re
import sys
from typing import NamedTuple

from sources import ROOT, own_files

PAGE = "doc/architecture.md"
ROW = re.compile(r"^\| `(\w+)` \|.*\|([\w, ]*)\|([\w,. ]*)\|([\w ]*)\|$", re.MULTILINE)
PACKETS = ["rte_mbuf.h", "rte_mempool.h"]


class Row(NamedTuple):
    libraries: list  # whose headers it may include, besides its own
    dpdk: list       # headers of DPDK; "*" is all of them
    virtual: bool    # time is a parameter


def words(cell):
    return cell.replace(",", " ").split()


def dpdk_headers(cell):
    return {"packets": PACKETS, "all": ["*"]}.get(cell.strip(), words(cell))


def read_table(text):
    """The page's table of layers: library -> Row."""
    layers = text.split("\n## Layers\n", 1)[1].split("\n## ", 1)[0]
    table = {name: Row(words(libraries), dpdk_headers(dpdk), virtual.strip() == "yes")
             for name, libraries, dpdk, virtual in ROW.findall(layers)}
    lines = len(re.findall(r"^\| `", layers, re.MULTILINE))
    unknown = {other for row in table.values() for other in row.libraries} - set(table)
    odd = {header for row in table.values() for header in row.dpdk
           if header != "*" and not re.match(r"rte_\w+\.h$", header)}
    if not table or unknown or odd or len(table) != lines:
        sys.exit(f"{PAGE}: {len(table)} of {lines} rows of the table of layers can be read, and "
                 f"name {sorted(unknown | odd) or 'nothing unknown'}: a row is | `library` | what "
                 "it is | libraries | DPDK's headers, packets or all | yes or nothing |")
    return table


TABLE = read_table((ROOT / PAGE).read_text(encoding="utf-8"))

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

CUDA_HEADERS = re.compile(r"^(cuda|nvrtc|nccl(?!_net/)|gdrapi|rte_gpudev_cuda)[\w./]*$|\.cuh$")
CUDA_FOLDERS = ("lib/gpu/", "lib/reduce/cuda/", "drivers/gpu/cuda/", "test/gpu/", "test/ptx/")

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
        elif (library in TABLE and TABLE[library].virtual and not name.startswith(DEVICE_FOLDERS)
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
        if target in TABLE and target != library and target not in TABLE[library].libraries:
            allowed = ", ".join(TABLE[library].libraries) or "no other library"
            yield f"{header}: lib/{library} may include {allowed}"
        if target.startswith(("app", "test")) or ".." in header.split("/"):
            yield f"{header}: a library includes by its path below lib/"
    if base.startswith("rte_"):
        if PORT_HEADERS.match(base) and library not in PORT_LIBRARIES:
            yield f"{header}: {PORTS_ALONE}"
        allowed = list(TABLE[library].dpdk)
        for folder, headers in DPDK_FOLDERS.items():
            allowed += headers if name.startswith(folder) else []
        if "*" not in allowed and base not in allowed:
            yield f"{header}: of DPDK, lib/{library} may include {', '.join(allowed) or 'nothing'}"
    if (TABLE[library].virtual and SANS_IO_HEADERS.match(header)
            and not name.startswith(DEVICE_FOLDERS)):
        yield f"{header}: no clock, socket or thread in lib/{library}"


def check_builds(library, text):
    """Yields what a meson.build of the library links that its row does not name."""
    for dependency in re.findall(r"'(\w+)'", "".join(re.findall(r"\bdeps \+?= (.*)", text))):
        target = dependency.split("_", 1)[0]  # reduce_gpu is a folder of reduce
        if target != library and target not in TABLE[library].libraries:
            yield f"deps has {dependency}, which the row of {library} in {PAGE} does not name"


def check_unused(used):
    """Yields what rows name and no source includes. used: library -> headers that it includes."""
    for library, row in TABLE.items():
        headers = used.get(library, set())
        if not headers:
            yield f"{PAGE}: the table of layers has {library}, and lib/{library} has no source"
            continue
        for other in row.libraries:
            if not any(header.startswith(other + "/") for header in headers):
                yield f"{PAGE}: lib/{library} includes nothing of {other}, which its row names"
        for header in row.dpdk:
            if header != "*" and row.dpdk is not PACKETS and header not in headers:
                yield f"{PAGE}: lib/{library} does not include {header}, which its row names"


def check_tree():
    failures = 0
    sources = [p for p in own_files() if p.suffix in ENDINGS and
               p.parts[0] in ("lib", "app", "drivers")]
    used = {}
    for path in sources:
        text = (ROOT / path).read_text(encoding="utf-8")
        if path.parts[0] == "lib" and len(path.parts) > 2:
            found = (INCLUDE.match(line) for line in text.splitlines())
            headers = used.setdefault(path.parts[1], set())
            headers.update(m.group(1) or m.group(2) for m in found if m)
        for number, wrong in check(path, text):
            print(f"{path}:{number}: {wrong}")
            failures += 1
    for path in own_files():
        if path.name == "meson.build" and path.parts[0] == "lib" and len(path.parts) > 2:
            for wrong in check_builds(path.parts[1], (ROOT / path).read_text(encoding="utf-8")):
                print(f"{path}: {wrong}")
                failures += 1
    for wrong in check_unused(used):
        print(wrong)
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
    ("lib/collective/x.cc", '#include "reduce/backend.h"', True),
    ("lib/collective/x.cc", '#include "lane/lane.h"', False),
    ("lib/collective/x.cc", "const auto now = rte_rdtsc();", False),
    ("lib/collective/x.cc", "// clock_gettime() is the lane's business.", True),
    ("lib/collective/x.cc", "clock_gettime(CLOCK_MONOTONIC, &t);", False),
    ("lib/reduce/x.cc", "#include <cuda_runtime.h>", False),
    ("lib/reduce/cuda/x.cc", "#include <cuda_runtime.h>", True),
    ("lib/reduce/x.cc", "#include <rte_gpudev.h>", False),
    ("lib/reduce/gpu/x.cc", "#include <rte_gpudev.h>", True),
    ("lib/gpu/x.cc", "#include <cuda.h>", True),
    ("lib/client/x.cc", "#include <cuda.h>", False),
    ("lib/client/x.cc", "#include <nccl.h>", False),
    ("lib/nccl_net/x.cc", '#include "nccl_net/abi.h"', True),
    ("lib/client/x.cc", '#include "gpu/cuda_device.h"', True),
    ("lib/ipc/x.cc", '#include "gpu/cuda_device.h"', False),
    ("lib/reduce/gpu/x.cc", "#include <rte_mbuf.h>", False),
    ("lib/reduce/gpu/x.cc", "#include <thread>", True),
    ("lib/reduce/gpu/x.cc", "#include <cuda_runtime.h>", False),
    ("lib/client/x.cc", "#include <rte_memcpy.h>", False),
    ("lib/client/x.cc", '#include "ipc/command_queue.h"', True),
    ("lib/client/x.cc", '#include "command/messages.h"', False),
    ("lib/client/x.cc", '#include "../ipc/command_queue.h"', False),
    ("lib/config/x.cc", "#include <rte_eal.h>", False),
    ("lib/ipc/x.cc", "#include <rte_ring.h>", False),
    ("lib/host/x.cc", '#include "host/isolation.h"', True),
    ("lib/host/x.cc", '#include "config/load.h"', False),
    ("lib/host/x.cc", "#include <rte_eal.h>", False),
    ("lib/sim/x.cc", '#include "collective/shard.h"', True),
    ("lib/sim/x.cc", "#include <chrono>", False),
    ("lib/collective/x.cc", '#include "sim/world/world.h"', False),
    ("lib/lane/x.cc", "#include <rte_ethdev.h>", True),
    ("lib/port/x.cc", "#include <rte_ethdev.h>", True),
    ("lib/port/x.cc", '#include "lane/lane.h"', False),
    ("lib/lane/x.cc", '#include "control/manager.h"', False),
    ("lib/control/x.cc", "#include <rte_ethdev.h>", False),
    ("lib/control/x.cc", '#include "command/messages.h"', True),
    ("lib/metrics/x.cc", "#include <rte_telemetry.h>", True),
    ("lib/metrics/x.cc", '#include "control/manager.h"', False),
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
    for text, fine in (("deps = ['base', 'wire']", True), ("deps = ['base', 'lane']", False),
                       ("deps = ['base']\ndeps += 'ipc'", False)):
        if (not list(check_builds("transport", text))) != fine:
            print(f"{text!r} should {'pass' if fine else 'fail'}")
            wrong += 1
    fully = {library: {"cstdint", *(f"{other}/x.h" for other in row.libraries), *row.dpdk}
             for library, row in TABLE.items()}
    less = {**fully, "collective": fully["collective"] - {"reduce/x.h"}}
    none = {**fully, "collective": set()}
    if list(check_unused(fully)) or not list(check_unused(less)) or not list(check_unused(none)):
        print("the check of names that nothing uses is wrong")
        wrong += 1
    print(f"{len(SELF_TEST) + 4} cases, {wrong} wrong")
    return wrong == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--self-test", action="store_true",
                        help="check the check on lines that break each rule")
    arguments = parser.parse_args()
    sys.exit(0 if (self_test() if arguments.self_test else check_tree()) else 1)
