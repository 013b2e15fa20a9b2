#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The commands gradwire and gradwire-perf, as an operator runs them, against fake daemons."""
import json
import os
import subprocess
import tempfile
import unittest

from support import FakeDaemons, form, open_clients

GRADWIRE = os.environ["GRADWIRE_CLI"]
PERF = os.environ["GRADWIRE_PERF"]


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


class Status(unittest.TestCase):
    def test_text_and_json(self):
        with FakeDaemons(2) as daemons:
            clients = open_clients(daemons)
            groups = form(clients, epoch=5)
            text = run(GRADWIRE, "status", "--socket", daemons.paths[1])
            self.assertEqual(text.returncode, 0, text.stderr)
            self.assertIn("gradwired fake, pid 1, running", text.stdout)
            self.assertIn("epoch 5: rank 1 of 2, formed", text.stdout)
            self.assertIn("waits for: op 1 on lane 0: data from upstream rank 0", text.stdout)
            environment = dict(os.environ, GRADWIRE_SOCKET=daemons.paths[0])
            parsed = json.loads(run(GRADWIRE, "status", "--json", env=environment).stdout)
            self.assertEqual(parsed["groups"][0]["rank"], 0)
            for group in groups:
                group.close()

    def test_no_daemon(self):
        result = run(GRADWIRE, "status", "--socket", "/nonexistent/socket")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no daemon listens at /nonexistent/socket", result.stderr)

    def test_a_daemon_that_says_nothing(self):
        with FakeDaemons(1) as daemons:
            daemons.tell("forget")
            result = run(GRADWIRE, "status", "--socket", daemons.paths[0], "--timeout", "0.1")
            self.assertEqual(result.returncode, 1)
            self.assertIn("did not answer in time", result.stderr)

    def test_usage(self):
        self.assertEqual(run(GRADWIRE).returncode, 2)
        self.assertEqual(run(GRADWIRE, "status", "--jsn").returncode, 2)
        self.assertEqual(run(GRADWIRE, "--help").returncode, 0)
        self.assertRegex(run(GRADWIRE, "--version").stdout, r"^gradwire \d+\.\d+\.\d+$")


class Perf(unittest.TestCase):
    def start(self, daemons, ranks, members, directory, *options):
        processes = []
        for rank in range(ranks):
            for member in range(members):
                command = [PERF, "--socket", daemons.paths[rank], "--rendezvous", directory]
                command += ["--rank", str(rank), "--nranks", str(ranks), "--member", str(member)]
                command += ["--members", str(members), *options]
                processes.append(
                    subprocess.Popen(
                        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                    )
                )
        return [(p, *p.communicate(timeout=60)) for p in processes]

    def test_sizes_are_timed_and_checked_on_every_rank(self):
        for datatype, op, extra in (
            ("fp32", "sum", []),
            ("bf16", "avg", ["--in-place"]),
            ("int8", "prod", []),
        ):
            with FakeDaemons(3) as daemons, tempfile.TemporaryDirectory() as directory:
                results = self.start(
                    daemons, 3, 2, directory, "-b", "0", "-e", "4K", "-f", "16", "-n", "5", "-w",
                    "1", "-d", datatype, "-o", op, "--check", *extra
                )
                for process, _, errors in results:
                    self.assertEqual(process.returncode, 0, errors)
                rows = [l for l in results[0][1].splitlines() if not l.startswith("#")]
                self.assertGreaterEqual(len(rows), 3)
                for row in rows:
                    columns = row.split()
                    self.assertEqual(columns[2:4], [datatype, op])
                    self.assertGreater(float(columns[4]), 0)
                    self.assertEqual(columns[8], "0")
                self.assertEqual(results[1][1], "")  # one table for all
                self.assertEqual(os.listdir(directory), [])

    def test_json(self):
        with FakeDaemons(1) as daemons:
            result = run(
                PERF, "--socket", daemons.paths[0], "-b", "1K", "-e", "4K", "-n", "3", "--no-check",
                "--json", "-"
            )
            self.assertEqual(result.returncode, 0, result.stderr)
            parsed = json.loads(result.stdout)
            self.assertEqual([r["size_bytes"] for r in parsed["results"]], [1024, 2048, 4096])
            first = parsed["results"][0]
            self.assertIsNone(first["wrong"])
            self.assertEqual(first["count"], 256)
            self.assertLessEqual(first["time_min_us"], first["time_p50_us"])
            self.assertAlmostEqual(first["algbw_bytes_per_s"], 1024e6 / first["time_p50_us"], 0)
            self.assertEqual(first["busbw_bytes_per_s"], 0)

    def test_a_rank_that_does_not_come_is_named(self):
        with FakeDaemons(1) as daemons, tempfile.TemporaryDirectory() as directory:
            result = run(
                PERF, "--socket", daemons.paths[0], "--nranks", "2", "--rendezvous", directory,
                "--timeout", "0.2"
            )
            self.assertEqual(result.returncode, 1)
            self.assertIn("info.1.0 did not come", result.stderr)

    def test_usage(self):
        for options, text in (
            (["--transport", "gradwire", "--nranks", "2"], "needs --port DEVICE=ADDRESS/BITS"),
            (["--transport", "gradwire", "--port", "x=y"], "--port 'x=y'"),
            (["--port", "net_memif0=10.0.0.1/24"], "--port is for transports gradwire and bare"),
            (["--transport", "pigeon"], "--transport 'pigeon' must be daemon, tcp, rdma, grad"),
            (["--transport", "bare", "--nranks", "3", "--rank", "0", "--port", "m=10.0.0.1/24"],
             "transport bare takes 2 ranks"),
            (["--no-pci", "--"], "'--no-pci' stands before \"--\""),
            (["--sizes", "1x"], "--sizes '1x'"),
            (["--rank", "2", "--nranks", "2"], "--rank 2 with --nranks 2"),
            (["--nranks", "2"], "need --rendezvous"),
            (["-d", "fp8"], "datatype 'fp8'"),
            (["-o", "mean"], "op 'mean'"),
            (["-b", "2K", "-e", "1K"], "-e 1024 is less than -b 2048"),
            (["-n", "0"], "--iterations"),
        ):
            result = run(PERF, *options)
            self.assertEqual(result.returncode, 2, options)
            self.assertIn(text, result.stderr)


if __name__ == "__main__":
    unittest.main()
