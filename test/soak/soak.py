#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""soak.py --minutes M --seed N --folder DIR SOCKET...: jobs without end on the daemons, several at
a time. A job is a client process on each daemon; they sum arrays of mixed sizes, datatypes and
redops, and compare every bit with the reference. Of every other job one client is killed at a
random moment: the others must be told so, and the job comes back under a new epoch. Beside that the
daemons' memory is watched. Exit 1 at the first thing that is wrong."""

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time

import gradwire

CLIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "soak_client.py")
JOB_LIMIT_S = 180
TOLD_LIMIT_S = 15
GROWTH_KB_MAX = 2048
SAMPLE_S = 5


def resident_kb(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    raise SystemExit(f"process {pid} has no VmRSS")


class Soak:
    def __init__(self, arguments):
        self.arguments = arguments
        self.end = time.monotonic() + arguments.minutes * 60
        self.lock = threading.Lock()
        self.failures = []
        self.ops = self.jobs = self.kills = 0

    def fail(self, text):
        with self.lock:
            self.failures.append(text)

    def run_job(self, slot, group, epoch, generator):
        """One job in one epoch. @return whether a client of it was killed."""
        folder = os.path.join(self.arguments.folder, f"{slot}-{epoch}")
        os.mkdir(folder)
        seed = generator.getrandbits(32)
        killed = generator.randrange(len(self.arguments.sockets)) if epoch % 2 == 0 else None
        processes, outputs = [], []
        for rank in range(len(self.arguments.sockets)):
            outputs.append(open(os.path.join(folder, f"out{rank}"), "w+", encoding="utf-8"))
            command = [sys.executable, CLIENT, "--rank", str(rank), "--group", str(group),
                       "--epoch", str(epoch), "--seed", str(seed), "--folder", folder]
            if killed is not None:
                command.append("--endless")
            processes.append(subprocess.Popen(
                command + self.arguments.sockets, stdin=subprocess.DEVNULL, stdout=outputs[-1],
                stderr=subprocess.STDOUT))
        try:
            if killed is not None:
                self.kill_one(processes, killed, folder, generator)
            for rank, process in enumerate(processes):
                self.wait_for(rank, process, killed, outputs[rank], f"slot {slot} epoch {epoch}")
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            for output in outputs:
                output.close()
        return killed is not None

    def kill_one(self, processes, rank, folder, generator):
        limit = time.monotonic() + JOB_LIMIT_S
        while not all(os.path.exists(os.path.join(folder, f"running{r}"))
                      for r in range(len(processes))):
            if time.monotonic() > limit or any(p.poll() is not None for p in processes):
                return  # whoever waits for them says what is wrong
            time.sleep(0.02)
        time.sleep(generator.uniform(0, 2))
        processes[rank].send_signal(signal.SIGKILL)

    def wait_for(self, rank, process, killed, output, what):
        limit = JOB_LIMIT_S if killed is None else TOLD_LIMIT_S
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            self.fail(f"{what}: rank {rank} did not end within {limit} s")
            return
        output.seek(0)
        text = output.read().strip()
        last = text.splitlines()[-1] if text else "nothing"
        if rank == killed:
            if status != -signal.SIGKILL:
                self.fail(f"{what}: rank {rank} ended with {status} before it was killed: {text}")
            return
        if status != 0:
            self.fail(f"{what}: rank {rank} ended with {status}: {text}")
        elif killed is not None and f"rank {killed} died" not in text:
            self.fail(f"{what}: rank {rank} was not told that rank {killed}'s client died: {text}")
        with self.lock:
            self.ops += int(last.split()[0]) if last.split()[0].isdigit() else 0

    def run_slot(self, slot):
        generator = random.Random(f"{self.arguments.seed} {slot}")
        group = generator.getrandbits(63)
        epoch = 0
        while time.monotonic() < self.end and not self.failures:
            epoch += 1
            try:
                killed = self.run_job(slot, group, epoch, generator)
            except (OSError, ValueError, IndexError) as error:
                self.fail(f"slot {slot} epoch {epoch}: {error}")
                return
            with self.lock:
                self.jobs += 1
                self.kills += killed

    def watch(self, threads):
        """Samples the daemons' memory until the threads have ended. @return samples by daemon."""
        pids = [gradwire.daemon_status(s)["daemon"]["pid"] for s in self.arguments.sockets]
        samples = [[] for _ in pids]
        next_line = time.monotonic() + 60
        while any(thread.is_alive() for thread in threads):
            for pid, kilobytes in zip(pids, samples):
                kilobytes.append(resident_kb(pid))
            if time.monotonic() >= next_line:
                next_line += 60
                print(f"{self.jobs} jobs, {self.kills} kills, {self.ops} sums, resident "
                      f"{[s[-1] for s in samples]} kB", flush=True)
            time.sleep(SAMPLE_S)
        return samples

    def check_memory(self, samples):
        for rank, kilobytes in enumerate(samples):
            # The first fifth is warm-up: every path is touched once.
            rest = kilobytes[len(kilobytes) // 5:]
            if len(rest) < 4:
                continue
            half = len(rest) // 2
            growth = max(rest[half:]) - max(rest[:half])
            print(f"daemon {rank}: {min(rest)} to {max(rest)} kB resident, {growth} kB more in the "
                  "second half", flush=True)
            if growth > GROWTH_KB_MAX:
                self.fail(f"daemon {rank} grew by {growth} kB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs="+")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--slots", type=int, default=2, help="jobs at a time")
    parser.add_argument("--folder", required=True)
    soak = Soak(parser.parse_args())
    threads = [threading.Thread(target=soak.run_slot, args=(slot,))
               for slot in range(soak.arguments.slots)]
    for thread in threads:
        thread.start()
    samples = soak.watch(threads)
    for thread in threads:
        thread.join()
    soak.check_memory(samples)
    if soak.jobs == 0 or soak.ops == 0 or (soak.arguments.minutes >= 1 and soak.kills == 0):
        soak.fail("hardly anything was done")
    print(f"{soak.jobs} jobs, {soak.kills} of them with a client killed, {soak.ops} sums with the "
          "reference's bits", flush=True)
    for failure in soak.failures:
        print(f"WRONG: {failure}", flush=True)
    return 1 if soak.failures else 0


if __name__ == "__main__":
    sys.exit(main())
