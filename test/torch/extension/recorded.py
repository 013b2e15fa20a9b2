# SPDX-License-Identifier: BSD-3-Clause
"""One of two processes whose calls torch's Flight Recorder has with state and times.

    recorded.py with|without   the C++ extension"""
import json
import sys
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace_json, _reset_fr_trace

import gradwire.torch


def entries():
    told = json.loads(_dump_fr_trace_json(True, False, "gradwire"))
    return told.get("entries", [])


def check_ended(many, known):
    """Of the last ``many``: they have ended, and the times are in order."""
    found = entries()[-many:]
    assert len(found) == many, found
    for entry in found:
        if not known:
            assert entry["state"] == "scheduled" and "duration_ms" not in entry, entry
            continue
        times = [entry[name] for name in (
            "time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")]
        assert entry["state"] == "completed" and entry["retired"], entry
        assert times == sorted(times) and times[0] > time.time_ns() - 600e9, entry
        assert abs(entry["duration_ms"] - (times[2] - times[1]) / 1e6) < 1e-3 * (
            1 + entry["duration_ms"]), entry
    return [entry["profiling_name"] for entry in found]


def main():
    known = sys.argv[1] == "with"
    torch.set_num_threads(1)
    dist.init_process_group("gradwire")
    rank, other = dist.get_rank(), 1 - dist.get_rank()
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    dist.barrier()
    dist.gather(tensor, [torch.empty(1000) for _ in range(2)] if rank == 0 else None, 0)
    works = dist.batch_isend_irecv([
        dist.P2POp(dist.isend, tensor, other), dist.P2POp(dist.irecv, torch.empty(1000), other)])
    for work in works:
        work.wait()
    names = check_ended(5, known)
    if rank == 0:
        print(names)
    # What has not ended is not said to have.
    late = torch.empty(10)
    work = dist.irecv(late, other)
    time.sleep(0.1)
    entry = entries()[-1]
    assert entry["state"] == ("started" if known else "scheduled"), entry
    dist.barrier()
    dist.send(torch.ones(10), other)
    work.wait()
    check_ended(3, known)
    # Thousands: the recorder keeps the last 2,000, and forgets what it was told to.
    for _ in range(2100):
        dist.all_reduce(late)
    check_ended(2000, known)
    _reset_fr_trace("gradwire")
    dist.all_reduce(late)
    check_ended(1, known)
    assert len(entries()) == 1
    # A call of the backend's own is nobody's entry.
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    backend.barrier(dist.BarrierOptions()).wait()
    assert len(entries()) == 1
    # An op that fails, as one process makes it alone, has not completed.
    if rank == 1:
        backend.end_everywhere()
    else:
        try:
            dist.all_reduce(tensor)
        except RuntimeError:
            pass
        assert gradwire.torch.stats()["failed"] == 1, gradwire.torch.stats()
        found = entries()
        assert len(found) == 2 and found[-1]["state"] != "completed", found
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
