#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the comparison says of figures that are known: medians, the better Open MPI, the bars."""
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, os.environ["GRADWIRE_COMPARE"])

import bars  # noqa: E402
import report  # noqa: E402

KB = 1 << 10
MB = 1 << 20


def result(size, p50_us, **more):
    return {"size_bytes": size, "time_p50_us": p50_us, "time_p99_us": 2 * p50_us, "wrong": 0,
            "cpu_s_per_gb": 0.5, **more}


class Report(unittest.TestCase):
    def make(self, runs, link="memif", unavailable=(), numbers=None, notes=None, **more):
        """runs: {(row, variant, repetition): [result]}."""
        meta = {"link": link, "mtu": 9000, "reps": 3, "rate_gbit": None, "nranks": 2,
                "cores": "0 1", "daemon_cores": "0 1", "daemon_shares": True,
                "daemon_polling": "adaptive", "quick": False, "commit": "abc", "changed": False,
                "versions": {"kernel": "6"}, "rows": [], **more}
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "meta.json").write_text(json.dumps(meta))
            for (row, variant, repetition), results in runs.items():
                path = folder / f"{row}.{variant}.{repetition}.json"
                note = (notes or {}).get((row, variant, repetition), "")
                path.write_text(json.dumps({"results": results, "note": note}))
            for row, variant, why in unavailable:
                (folder / f"{row}.{variant}.unavailable").write_text(why)
            for file, shares in (numbers or {}).items():
                (folder / file).write_text("\n".join(map(str, shares)))
            return report.build(folder)

    def test_a_figure_is_the_median_over_repetitions(self):
        made = self.make({("tcp", "plain", i): [result(64, us)] for i, us in
                          enumerate((9.0, 5.0, 7.0))})
        figures = made["variants"]["plain"]["rows"]["tcp"][64]
        self.assertEqual(figures["time_p50_us"], 7.0)
        self.assertEqual((figures["time_p50_us_least"], figures["time_p50_us_most"]), (5.0, 9.0))
        # n = 2: busbw is algbw.
        self.assertAlmostEqual(figures["busbw_bytes_per_s"], 64 / 7e-6)

    def test_runs_that_found_the_cores_elsewhere_do_not_count(self):
        def made(far):
            runs = {("tcp", "plain", i): [result(64, 50.0 if i in far else 5.0)] for i in range(6)}
            runs |= {("daemon", "plain", i): [result(64, 7.0)] for i in range(6)}
            cores = {f"tcp.plain.{i}.cores": (120, 520 if i in far else 123) for i in range(6)}
            cores |= {f"daemon.plain.{i}.cores": (118, 121) for i in range(6)}
            return self.make(runs, numbers={**cores, "cores.txt": [118] * 9 + [520] * 9})

        # Four of six: without leaving them out the median would be that of far cores.
        report_ = made(far=(0, 2, 3, 5))
        figures = report_["variants"]["plain"]["rows"]["tcp"][64]
        self.assertEqual((figures["time_p50_us"], figures["runs"]), (5.0, 2))
        self.assertEqual(report_["runs_set_aside"], [f"tcp.plain.{i}" for i in (0, 2, 3, 5)])
        self.assertIn("Only runs with 118 to 123 ns before and after them count; 4 of 12 are left "
                      "out", report.text_of(report_, "today"))
        # A single run is none to compare with: all count, and the report says that cores moved.
        report_ = made(far=(0, 1, 2, 3, 4))
        self.assertEqual(report_["variants"]["plain"]["rows"]["tcp"][64]["time_p50_us"], 50.0)
        self.assertEqual(report_["runs_set_aside"], [])
        self.assertIn("the best repetitions compare better", report.text_of(report_, "today"))

    def test_more_than_two_ranks_have_bars_of_small_ops(self):
        made = self.make({("daemon", "off", 1): [result(64, 10.0)],
                          ("mpi-tcp", "off", 1): [result(64, 30.0)]},
                         link="veth", nranks=4, shared=True)
        self.assertEqual([(b["what"], b["value"]) for b in made["bars"]][0],
                         ("p50 at 64 B, Open MPI over TCP / daemon, offloads off", 3.0))
        text = report.text_of(made, "today")
        self.assertIn("- 4 ranks, cores 0 1", text)
        self.assertIn("SHARED CORES: there are more ranks than cores", text)

    def test_open_mpi_is_the_better_of_its_two_size_by_size(self):
        made = self.make({
            ("mpi-tcp", "plain", 1): [result(64, 5.0), result(MB, 900.0)],
            ("mpi-tcp-ring", "plain", 1): [result(64, 9.0), result(MB, 400.0)],
        })
        rows = made["variants"]["plain"]["rows"]
        self.assertNotIn("mpi-tcp-ring", rows)
        self.assertEqual([rows["mpi-tcp"][s]["time_p50_us"] for s in (64, MB)], [5.0, 400.0])
        self.assertEqual(rows["mpi-tcp"][MB]["way"], "its ring")

    def test_the_tcp_ring_is_the_better_of_system_calls_and_io_uring(self):
        made = self.make({
            ("tcp", "plain", 1): [result(64, 5.0), result(64 * KB, 12.0)],
            ("tcp-uring", "plain", 1): [result(64, 6.0), result(64 * KB, 10.0)],
        })
        rows = made["variants"]["plain"]["rows"]
        self.assertNotIn("tcp-uring", rows)
        self.assertEqual([rows["tcp"][s]["time_p50_us"] for s in (64, 64 * KB)], [5.0, 10.0])
        self.assertIn("TCP ring of gradwire-perf was better with io_uring at 64 KB; elsewhere with "
                      "system calls.", report.text_of(made, "today"))

    def test_sealed_packets_are_judged_by_tls_and_by_clear_at_64_mb(self):
        def made(encrypt_us):
            return self.make({
                ("daemon", "plain", 1): [result(64 * MB, 100.0), result(MB, 10.0)],
                ("daemon-encrypt", "plain", 1): [result(64 * MB, encrypt_us), result(MB, 20.0)],
                ("tls", "plain", 1): [result(64 * MB, 450.0), result(MB, 15.0)],
            })

        found = {b["what"]: b for b in made(200.0)["bars"] if "encrypt" in b["what"]}
        over_tls = found["daemon-encrypt, 64 MB, over the TCP ring by TLS"]
        self.assertAlmostEqual(over_tls["value"], 2.25)
        self.assertEqual((over_tls["bar"], over_tls["verdict"]), (2, "reached"))
        self.assertAlmostEqual(found["daemon-encrypt, 64 MB, over daemon in clear"]["value"], 0.5)
        self.assertEqual(found["daemon-encrypt, 1 MB, over the TCP ring by TLS"]["verdict"],
                         "printed")
        slow = {b["what"]: b["verdict"] for b in made(300.0)["bars"]}
        self.assertEqual(slow["daemon-encrypt, 64 MB, over the TCP ring by TLS"], "NOT REACHED")

    def test_who_sealed_is_said(self):
        made = self.make({("tls", "plain", 1): [result(64, 5.0)]},
                         notes={("tls", "plain", 1): "TLSv1.3, sealed by OpenSSL"})
        self.assertIn("TCP ring of gradwire-perf, by TLS: TLSv1.3, sealed by OpenSSL.",
                      report.text_of(made, "today"))

    def test_busbw_of_each_collective_is_that_of_nccl_tests(self):
        runs = {("daemon", "plain", 1): [result(MB, 100.0)],
                ("gloo", "plain", 1): [result(MB, 150.0)]}
        for collective, factor in (("all-reduce", 1.0), ("reduce-scatter", 0.5),
                                   ("all-gather", 0.5), ("all-to-all", 0.5), ("broadcast", 1.0),
                                   ("reduce", 1.0), ("send-recv", 1.0)):
            made = self.make(runs, collective=collective)
            figures = made["variants"]["plain"]["rows"]["daemon"][MB]
            self.assertAlmostEqual(figures["busbw_bytes_per_s"], MB / 1e-4 * factor)
            # Bars are of all-reduce alone.
            self.assertEqual(bool(made["bars"]), collective == "all-reduce")
        text = report.text_of(made, "today")
        self.assertIn("# Send-recv over memif", text)
        self.assertIn("Its time over that of gradwire, through the daemon", text)

    def test_a_disturbed_run_says_so_at_its_top(self):
        runs = {("gradwire", "plain", 1): [result(64, 4.0)]}
        quiet = {"others.txt": [0.01] * 9 + [0.3], "stolen.txt": [0.0, 0.01],
                 "cores.txt": [100, 110, 120]}
        loud = {"others.txt": [0.01] * 8 + [0.3, 0.5], "stolen.txt": [0.0, 0.07],
                "cores.txt": [100] * 5 + [400] * 5}
        top = report.text_of(self.make(runs, numbers=quiet), "today").split("## ")[0]
        self.assertNotIn("DISTURBED", top)
        self.assertIn("core to core and back in 110 ns", top)
        lines = report.text_of(self.make(runs, numbers=loud), "today").splitlines()
        self.assertEqual([line.split(":")[0] for line in lines[2:6]],
                         ["- DISTURBED"] * 3 + ["- Machine"])
        self.assertIn("before 2 of 10 rows other processes used the two cores, up to 50 %",
                      lines[2])
        self.assertIn("up to 7 % of a row's time", lines[3])
        self.assertIn("from 100 to 400 ns", lines[4])

    def test_beside_busy_processes_each_row_is_judged_by_its_own_time_alone(self):
        made = self.make({
            ("daemon", "plain", 1): [result(MB, 100.0)], ("daemon", "busy", 1): [result(MB, 149.0)],
            ("gradwire", "plain", 1): [result(MB, 90.0)],
            ("gradwire", "busy", 1): [result(MB, 200.0)],
            ("tcp", "plain", 1): [result(MB, 150.0)], ("tcp", "busy", 1): [result(MB, 150.0)],
        }, beside="busy")
        by_name = {b["what"]: (b["verdict"], b["value"]) for b in made["bars"]}
        self.assertEqual(by_name["daemon beside busy over alone, 1 MB, p50"], ("reached", 1.49))
        self.assertEqual(by_name["embedded beside busy over alone, 1 MB, p50"][0], "NOT REACHED")
        self.assertEqual(by_name["daemon over the TCP ring, both beside busy, 1 MB, p50"][0],
                         "reached")
        self.assertEqual(by_name["embedded over the TCP ring, both beside busy, 1 MB, p50"][0],
                         "NOT REACHED")
        self.assertEqual(by_name["daemon beside busy over alone, 64 B, p50"][0], "not measured")
        self.assertIn("at most 1.5x", report.bars_text(made))

    def test_bars_are_against_the_best_tcp_peer(self):
        made = self.make({
            ("gradwire", "plain", 1): [result(64 * MB, 10_000.0)],
            ("tcp", "plain", 1): [result(64 * MB, 29_000.0)],
            ("gloo", "plain", 1): [result(64 * MB, 50_000.0)],
            ("mpi-tcp", "plain", 1): [result(64 * MB, 60_000.0)],
            ("daemon", "plain", 1): [result(64 * MB, 11_000.0)],
        })
        by_name = {b["what"]: b for b in made["bars"]}
        first = by_name["busbw at 64 MB over the best kernel-TCP peer"]
        self.assertAlmostEqual(first["value"], 2.9)
        self.assertEqual(first["verdict"], "NOT REACHED")
        others = by_name["busbw at 64 MB over the better of Gloo and Open MPI TCP"]
        self.assertEqual((round(others["value"], 3), others["verdict"]), (5.0, "printed"))
        self.assertEqual(by_name["busbw at 256 MB over the best kernel-TCP peer"]["verdict"],
                         "not measured")
        daemon = by_name["through the daemon against embedded, 64 MB"]
        self.assertEqual((round(daemon["value"], 3), daemon["verdict"]), (0.909, "reached"))
        ring = [b for b in made["bars"] if b["what"].startswith("TCP ring")][0]
        self.assertAlmostEqual(ring["value"], 50 / 29)
        self.assertEqual(ring["verdict"], "reached")

    def test_through_the_daemon_a_small_op_may_cost_twice_its_wake_ups(self):
        def bar(daemon_us, numbers):
            made = self.make({("daemon", "plain", 1): [result(64, daemon_us)],
                              ("gradwire", "plain", 1): [result(64, 2.0)]},
                             beside="busy", numbers=numbers)
            return made["bars"][-1]

        wakes = {"wakes.txt": [4.0, 5.0, 90.0]}
        self.assertEqual([bar(us, wakes)["verdict"] for us in (12.0, 12.5)],
                         ["reached", "NOT REACHED"])
        self.assertEqual(bar(12.0, {})["verdict"], "not measured")

    def test_best_repetitions_stand_beside_the_medians(self):
        runs = {("gradwire", "plain", i): [result(64 * MB, us)] for i, us in
                enumerate((30_000.0, 10_000.0, 30_000.0))}
        runs |= {("tcp", "plain", i): [result(64 * MB, us)] for i, us in
                 enumerate((20_000.0, 45_000.0, 45_000.0))}
        runs |= {("bare", "plain", 1): [result(64 * MB, 6_000.0)]}
        by_name = {b["what"]: b for b in self.make(runs)["bars"]}
        over_tcp = by_name["busbw at 64 MB over the best kernel-TCP peer"]
        self.assertAlmostEqual(over_tcp["value"], 1.5)
        self.assertAlmostEqual(over_tcp["best"], 2.0)
        over_bare = by_name["gradwire over the driver alone, 64 MB"]
        self.assertAlmostEqual(over_bare["value"], 0.2)
        self.assertAlmostEqual(over_bare["best"], 0.6)
        self.assertEqual(over_bare["verdict"], "printed")
        self.assertNotIn("TCP ring over the driver alone, 256 MB", by_name)

    def test_with_offloads_on_it_is_printed_and_never_a_failure(self):
        made = self.make({
            (row, variant, 1): [result(64 * MB, us)]
            for variant in ("off", "on") for row, us in (("gradwire", 20.0), ("tcp", 22.0))
        }, link="veth")
        off, on = made["bars"][:2]
        self.assertEqual((off["verdict"], on["verdict"]), ("NOT REACHED", "aim reached"))
        self.assertEqual(bars.bar("x", 0.5, None, 1)["verdict"], "printed")

    def test_the_text_hides_nothing(self):
        made = self.make(
            {("tcp", "plain", 1): [result(64, 7.0), result(MB, 500.0, wrong=3)]},
            unavailable=[("gradwire", "plain", "it is not built yet"),
                         ("tcp", "plain", "no answer in time")], rate_gbit=100)
        text = report.text_of(made, "2026-01-01")
        self.assertIn("Unavailable: gradwire, embedded: it is not built yet", text)
        self.assertIn("Failed in one repetition, so it has fewer runs: tcp: no answer", text)
        self.assertIn("WRONG RESULTS: TCP ring: 3", text)
        self.assertIn("not measured", text)
        # 1 MB at 100 Gbit/s takes 83.89 us at least: 17% of that rate in 500 us.
        self.assertRegex(text, r"1 MB \| +83.89 us \| +- \| +17%")

    def test_times_and_sizes_read_well(self):
        self.assertEqual(report.size_text(64), "64 B")
        self.assertEqual(report.size_text(256 * MB), "256 MB")
        self.assertEqual(report.time_text(5.678), "5.68 us")
        self.assertEqual(report.time_text(1234.5), "1.23 ms")
        self.assertEqual(report.time_text(150_000), "150 ms")


if __name__ == "__main__":
    unittest.main()
