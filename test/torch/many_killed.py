# SPDX-License-Identifier: BSD-3-Clause
"""Trainings that lose a process at a random moment, one after the other:

    many_killed.py KILLS SEED SOCKET...    at the daemons of these sockets

A round draws how it trains (DDP, FSDP2, or DDP that goes on by regroup()), how many processes at
which daemons, who is killed, and when: while the group forms, or in a step. Each survivor has to be
told whom it lost, or to go on. Prints a line for each round, and how long it took to be told; exits
with 1 if a survivor was told something else, or nothing.

The seed draws everything but at which instruction the process is hit, so each round has to end well
whatever that is."""
import datetime
import json
import os
import random
import re
import select
import signal
import statistics
import sys
import time
import traceback

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch

KINDS = ("ddp", "fsdp2", "regroup")
# Of who is killed while the group forms nobody knows anything but that it did not come.
FORMING_S, TIMEOUT_S = 10, 60
# Whoever is not told by then hangs.
HANGS_S = 40 * int(os.environ.get("TIMEOUT_MULTIPLIER", "1"))
STEPS_AFTER = 10


class Round:
    def __init__(self, seed, number, daemons):
        draw = random.Random("%d/%d" % (seed, number))
        self.number = number
        self.kind = draw.choice(KINDS)
        self.world = draw.randint(2, 4)
        self.at = [0] + sorted(draw.randrange(daemons) for _ in range(self.world - 1))
        self.victim = draw.randrange(self.world)
        self.forming = draw.random() < 0.25
        self.after_s = draw.random() * (0.2 if self.forming else 0.5)
        self.width = draw.choice((8, 64, 300))

    def __str__(self):
        return "round %d: %s, processes at daemons %s, %d is killed %.3f s after %s" % (
            self.number, self.kind, self.at, self.victim, self.after_s,
            "it begins to form the group" if self.forming else "its first step")


class Training:
    def __init__(self, round_):
        torch.manual_seed(1)
        width = round_.width
        self.model = torch.nn.Sequential(
            *(torch.nn.Linear(width, width) for _ in range(3)), torch.nn.Linear(width, 1))
        self.width, self.fsdp2, self.step = width, round_.kind == "fsdp2", 0

    def begin(self):
        """With the members that there are now; all go on from rank 0's state."""
        step = torch.tensor([self.step])
        dist.broadcast(step, 0)
        self.step = int(step)
        if self.fsdp2:
            for layer in [*self.model, self.model]:
                fully_shard(layer)
            self.parallel = self.model
        else:
            self.parallel = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def train(self):
        generator = torch.Generator().manual_seed(1000 * self.step + dist.get_rank())
        self.optimizer.zero_grad()
        self.parallel(torch.randn(8, self.width, generator=generator)).square().mean().backward()
        self.optimizer.step()
        self.step += 1

    def whole(self):
        return torch.cat([p.detach().reshape(-1) for p in self.model.parameters()])


def goes_on(training):
    """Without who was lost. Returns how many it goes on with; all have the same parameters."""
    members = gradwire.torch.regroup(patience=20, timeout=HANGS_S)
    training.begin()
    for _ in range(STEPS_AFTER):
        training.train()
    ours = training.whole()
    largest, least = ours.clone(), ours.clone()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    dist.all_reduce(least, dist.ReduceOp.MIN)
    assert torch.equal(largest, least), "survivors have different parameters"
    return members.size


def member(round_, rank, hears, socket, say):
    """One process of the job. ``hears``: a pipe that tells the port of its store."""
    os.environ["GRADWIRE_SOCKET"] = socket
    port = int(os.read(hears, 16))
    store = dist.TCPStore("127.0.0.1", port, is_master=False,
                          timeout=datetime.timedelta(seconds=TIMEOUT_S))
    say(kind="forming")
    began, training = False, None
    try:
        limit = datetime.timedelta(seconds=FORMING_S if round_.forming else TIMEOUT_S)
        dist.init_process_group("gradwire", store=store, rank=rank, world_size=round_.world,
                                timeout=limit)
        training = Training(round_)
        training.begin()
        while True:
            training.train()
            if not began:
                say(kind="training")
                began = True
    except (RuntimeError, dist.DistError) as error:
        said = gradwire.torch.group_error() if dist.is_initialized() else None
        say(kind="told", text=str(said or error), began=began)
    if round_.kind == "regroup" and began:
        say(kind="went on", size=goes_on(training))
        dist.barrier()
    if dist.is_initialized():
        dist.destroy_process_group()
    say(kind="ended")


def start(round_, rank, hears, socket):
    """The number of a process, and a pipe for what it says, a line of JSON each."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writes)
        return pid, reads
    status = 1
    try:
        os.close(reads)

        def say(**what):
            os.write(writes, (json.dumps(dict(what, at=time.monotonic())) + "\n").encode())

        try:
            member(round_, rank, hears, socket, say)
            status = 0
        except BaseException:
            say(kind="failed", text=traceback.format_exc())
    finally:
        os._exit(status)


class Job:
    """The processes of a round, and what they have said."""

    def __init__(self, round_, sockets):
        self.pids, self.pipes, self.unread = [], {}, {}
        hears, tells = os.pipe()
        for rank in range(round_.world):
            pid, pipe = start(round_, rank, hears, sockets[round_.at[rank]])
            self.pids.append(pid)
            self.pipes[pipe], self.unread[pipe] = rank, b""
        # Not before: it has threads, and a process that is forked beside them may never run.
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.write(tells, (b"%-16d" % self.store.port) * round_.world)
        os.close(hears)
        os.close(tells)
        self.said = {rank: [] for rank in range(round_.world)}

    def listen(self, seconds, until):
        """Until that holds, or the time is over, or all have ended. Returns whether it holds."""
        limit = time.monotonic() + seconds
        while not until():
            left = limit - time.monotonic()
            if left <= 0 or not self.pipes:
                return False
            for pipe in select.select(list(self.pipes), [], [], left)[0]:
                read = os.read(pipe, 1 << 16)
                *lines, self.unread[pipe] = (self.unread[pipe] + read).split(b"\n")
                self.said[self.pipes[pipe]] += map(json.loads, lines)
                if not read:
                    del self.pipes[pipe]
                    os.close(pipe)
        return True

    def of(self, rank, kind):
        return next((line for line in self.said[rank] if line["kind"] == kind), None)

    def end(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)  # of one that has ended this does nothing
            os.waitpid(pid, 0)
        for pipe in self.pipes:
            os.close(pipe)
        self.store = None


def names(round_, pid, told):
    """Whether an error names the process that was killed: by its pid, which its daemon knows; or,
    if it did not come to the group, by its number in the job, as a member of its daemon, or by that
    daemon's number."""
    if "(pid %d)" % pid in told["text"]:
        return True
    daemon = round_.at[round_.victim]
    ranks = list(dict.fromkeys(round_.at))  # of daemons, which are numbered as processes come
    said = r"rank %d has not come|member %d of \d+ has not joined|\brank %d\b" % (
        round_.victim, round_.victim - round_.at.index(daemon), ranks.index(daemon))
    return not told["began"] and re.search(said, told["text"]) is not None


def run(round_, sockets):
    """What is wrong, as texts, and after how long each survivor was told."""
    job, wrong, times = Job(round_, sockets), [], []
    try:
        phase = "forming" if round_.forming else "training"
        if not job.listen(HANGS_S, lambda: job.of(round_.victim, phase)):
            return ["it does not begin: %s" % job.said], times
        time.sleep(round_.after_s)
        killed_at = time.monotonic()
        os.kill(job.pids[round_.victim], signal.SIGKILL)
        survivors = [rank for rank in range(round_.world) if rank != round_.victim]

        def over(rank):
            return job.of(rank, "ended") or job.of(rank, "failed")

        job.listen(HANGS_S, lambda: all(over(rank) for rank in survivors))
        for rank in survivors:
            told, failed = job.of(rank, "told"), job.of(rank, "failed")
            if failed is not None:
                wrong.append("process %d: %s" % (rank, failed["text"]))
            elif told is None:
                wrong.append("process %d hangs: it said %s" % (rank, job.said[rank]))
            elif not names(round_, job.pids[round_.victim], told):
                wrong.append("process %d is not told of %d: %s" % (
                    rank, round_.victim, told["text"]))
            elif job.of(rank, "ended") is None:
                wrong.append("process %d does not end: it said %s" % (rank, job.said[rank]))
            elif round_.kind == "regroup" and told["began"]:
                size = job.of(rank, "went on")["size"]
                if size != round_.world - 1:
                    wrong.append("process %d goes on with %d processes" % (rank, size))
            if told is not None and told.get("began"):
                times.append(told["at"] - killed_at)
    finally:
        job.end()
    return wrong, times


def main():
    torch.set_num_threads(1)
    kills, seed, sockets = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    times, failed = [], 0
    for number in range(kills):
        round_ = Round(seed, number, len(sockets))
        wrong, told = run(round_, sockets)
        times += told
        print("%s: %s" % (round_, "well" if not wrong else "WRONG"), flush=True)
        for text in wrong:
            print("  " + text, flush=True)
        failed += bool(wrong)
    if times:
        print("told after: median %.0f ms, most %.0f ms, %d survivors" % (
            statistics.median(times) * 1000, max(times) * 1000, len(times)))
    print("%d kills, %d failed" % (kills, failed))
    return 1 if failed or not times else 0


if __name__ == "__main__":
    sys.exit(main())
