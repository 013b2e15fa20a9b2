# SPDX-License-Identifier: BSD-3-Clause
"""python -m gradwire.check: what this host has, in five lines, and whether an all-reduce works.

    GRADWIRE_SOCKET   the daemon; /run/gradwire/gradwired.sock if it is not set

Exit status: 0 if all is well, 1 with the reason in the line that fails."""
import importlib.metadata
import importlib.util
import os
import secrets
import sys
import time

NBYTES = 1 << 20


def _torch():
    if importlib.util.find_spec("torch") is None:
        return "torch: not installed; the backend for it needs 2.14 or later"
    import torch

    if not torch.distributed.is_available():
        return "torch: %s, without torch.distributed" % torch.__version__
    from .torch import register

    try:
        register()
    except ImportError as error:
        return "torch: %s" % error
    found = any(
        point.name == "gradwire"
        for point in importlib.metadata.entry_points().select(group="torch.distributed.backends")
    )
    return 'torch: %s, init_process_group("gradwire") works%s' % (
        torch.__version__, "" if found else ' after "import gradwire.torch"',
    )


def lines():
    from . import Client, daemon_status, library_path, version

    yield "library: gradwire %s, %s" % (version(), library_path())
    client = Client()
    status, info = daemon_status()["daemon"], client.info()
    yield "daemon: gradwire %s, process %d, %s; %d lane%s, chunks of %d bytes; client %d" % (
        status["version"], status["pid"], status["state"], info["lanes"],
        "" if info["lanes"] == 1 else "s", info["max_payload_bytes"], info["client_id"],
    )
    memory = client.allocate(NBYTES)
    yield "memory: %d bytes in %s, NUMA node %s" % (
        memory.nbytes,
        "hugepages" if memory.device is None else "GPU %d" % memory.device,
        "unknown" if memory.numa_node < 0 else memory.numa_node,
    )
    group = client.join(secrets.randbits(64), 0, 0, [client.describe()], timeout=10.0)
    if memory.device is None:
        numbers = memory.array("float32", NBYTES // 4)
        numbers[:] = range(len(numbers))
        before = numbers.copy()
        start = time.monotonic()
        group.all_reduce(numbers).wait(10.0)
        took = time.monotonic() - start
        if not (numbers == before).all():
            raise RuntimeError("the sum of 1 MB with nobody else is not the input")
        yield "all-reduce: 1 MB with itself, right, %.0f us" % (took * 1e6)
    else:
        group.barrier().wait(10.0)
        yield "all-reduce: not tried on a GPU's memory; a barrier with itself works"
    group.leave()
    group.close()
    yield _torch()


def main():
    names = ["library", "daemon", "memory", "all-reduce", "torch"]
    done = 0
    try:
        for line in lines():
            print(line, flush=True)
            done += 1
    except Exception as error:
        where = os.environ.get("GRADWIRE_SOCKET", "/run/gradwire/gradwired.sock")
        print("%s: FAILED: %s (GRADWIRE_SOCKET is %s)" % (names[done], error, where))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
