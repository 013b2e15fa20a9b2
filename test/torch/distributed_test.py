# SPDX-License-Identifier: BSD-3-Clause
"""One process of a job that runs PyTorch's own tests of torch.distributed, from the installed
package, on the backend gradwire: each test in a process group of its own, in the same processes.

    distributed_test.py FOLDER [PATTERN]     results in FOLDER/results.txt, from rank 0

A test that fails on one process and hangs on another ends by the group's timeout."""
import datetime
import fnmatch
import io
import os
import sys
import time
import traceback
import unittest

FOLDER = sys.argv[1]
os.environ["BACKEND"] = "gradwire"
os.environ["TEMP_DIR"] = FOLDER
os.environ["INIT_METHOD"] = "file://%s/shared" % FOLDER

import torch
import torch.distributed as dist
from torch.testing._internal import common_distributed

import gradwire.torch

CASES = common_distributed.DistTestCases
for feature in ("gpu", "ddp", "subgroup", "plugin"):
    CASES.backend_feature[feature] = CASES.backend_feature[feature] | {"gradwire"}
CASES.skip_collective["sendrecv anysource"] = {"gradwire"}

from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.distributed import distributed_test

from excluded import EXCLUDED

TIMEOUT_S = 20
SKIP_CODES = {skip.exit_code: skip.message for skip in common_distributed.TEST_SKIPS.values()}


class Tests(TestCase, distributed_test.DistributedTest._DistTestBase):
    rank = int(os.environ["RANK"])
    world_size = os.environ["WORLD_SIZE"]
    store = None  # between tests: no group of the tests' own

    @property
    def file_name(self):
        return os.path.join(FOLDER, "store-" + self._testMethodName)

    @property
    def init_method(self):
        return "file://" + self.file_name

    def _barrier(self, *_, **__):
        self.meet("barrier")

    def meet(self, name):
        """All processes come here."""
        Tests.meetings += 1
        base = "%s/%d" % (name, Tests.meetings)
        self.store.set("%s/%d" % (base, self.rank), "here")
        keys = ["%s/%d" % (base, rank) for rank in range(int(self.world_size))]
        self.store.wait(keys, datetime.timedelta(seconds=3 * TIMEOUT_S))

    meetings = 0


def run(name):
    """What became of one test in this process, and why."""
    test = Tests(name)
    Tests.meetings = 0
    Tests.store = dist.PrefixStore(name, ROOT)
    outcome, reason = "passed", ""
    torch.manual_seed(0)
    os.environ.pop("TORCH_DISTRIBUTED_DEBUG", None)
    dist.set_debug_level_from_env()
    try:
        dist.init_process_group(
            "gradwire", init_method=test.init_method, rank=test.rank,
            world_size=int(test.world_size), timeout=datetime.timedelta(seconds=TIMEOUT_S),
        )
        test.meet("ready")
        getattr(test, name)()
        test.meet("done")
    except unittest.SkipTest as skip:
        outcome, reason = "skipped", str(skip)
    except SystemExit as end:
        outcome, reason = "skipped", SKIP_CODES.get(end.code, "it ended with %s" % end.code)
        if end.code not in SKIP_CODES:
            outcome = "failed"
    except BaseException as error:
        text = io.StringIO()
        traceback.print_exc(limit=-6, file=text)
        outcome, reason = "failed", text.getvalue()
        del error
    try:
        if outcome == "skipped":
            test.meet("done")
        if dist.is_initialized():
            dist.destroy_process_group()
    except Exception as error:
        if outcome == "passed":
            outcome, reason = "failed", "destroy_process_group: %s" % error
    return outcome, reason


def main():
    global ROOT
    pattern = sys.argv[2] if len(sys.argv) > 2 else "test_*"
    world, rank = int(os.environ["WORLD_SIZE"]), Tests.rank
    ROOT = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), world, rank == 0)
    torch.set_num_threads(1)
    for folder in ("barrier", "test_dir", "init_dir"):
        os.makedirs(os.path.join(FOLDER, folder), exist_ok=True)
    names = fnmatch.filter(unittest.TestLoader().getTestCaseNames(Tests), pattern)
    counts = {"passed": 0, "skipped": 0, "failed": 0, "excluded": 0}
    lines = []
    for name in names:
        start = time.monotonic()
        if name in EXCLUDED:
            outcomes = [("excluded", EXCLUDED[name])]
        else:
            outcome = run(name)
            ROOT.set("end/%s/%d" % (name, rank), "\n".join(outcome))
            outcomes = []
            for other in range(world):
                ROOT.wait(["end/%s/%d" % (name, other)], datetime.timedelta(seconds=200))
                text = ROOT.get("end/%s/%d" % (name, other)).decode()
                outcomes.append(tuple(text.split("\n", 1)))
        kinds = [kind for kind, _ in outcomes]
        kind = "failed" if "failed" in kinds else kinds[0]
        counts[kind] += 1
        if rank:
            continue
        reasons = {reason.strip() for said, reason in outcomes if said == kind and reason}
        line = "%s %s (%.1f s) %s" % (kind, name, time.monotonic() - start, " | ".join(reasons))
        lines.append(line)
        if kind == "failed":
            print(line, flush=True)
        with open(os.path.join(FOLDER, "results.txt"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    ROOT.set("over/%d" % rank, "1")
    ROOT.wait(["over/%d" % other for other in range(world)], datetime.timedelta(seconds=60))
    # The store is rank 0's: it ends when nobody waits for it any more.
    if rank:
        ROOT.set("gone/%d" % rank, "1")
    else:
        ROOT.wait(["gone/%d" % other for other in range(1, world)], datetime.timedelta(seconds=60))
        print("torch %s: %s" % (torch.__version__, ", ".join(
            "%d %s" % (count, kind) for kind, count in counts.items())))
    sys.stdout.flush()
    os._exit(1 if counts["failed"] or not counts["passed"] else 0)


if __name__ == "__main__":
    main()
