#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradwire.torch's wire formats: who asks, what falls back, whose residual is added to what, and
what the statistics say. Fake daemons leave residuals alone."""
import os
import sys
import threading
import types
import unittest
import unittest.mock

import numpy

try:
    import torch
    import torch.distributed as dist
except ImportError:
    print("SKIP: torch is not installed")
    sys.exit(77)

import gradwire
from gradwire import GradwireError
from gradwire._native import ALL_REDUCE, BROADCAST, REDUCE_SCATTER, Status
from gradwire.client import DATATYPES, OPS, WIRES
from gradwire.torch import GradwireState, allreduce_hook, wire
from gradwire.torch.feedback import Feedback
from support import FakeDaemons, form, open_clients
from torch_test import _train, run

# Threads of torch's would be missing in the processes that are forked from this one.
torch.set_num_threads(1)
FP32 = DATATYPES["fp32"]


def train_in_format(rank, paths, wire_format="int8"):
    reference = _train(rank, None)
    with GradwireState(socket=paths[rank], members=1, format=wire_format) as state:
        hooked = _train(rank, state)
        stats = state.stats()
    # Gradients are rounded, or summed as they are.
    near = all(torch.allclose(a, b, rtol=0, atol=2e-3) for a, b in zip(reference, hooked))
    return near, all(torch.equal(a, b) for a, b in zip(reference, hooked)), stats


def train_in_two_formats(rank, paths):
    try:
        train_in_format(rank, paths, ("bf16", "int8")[rank])
    except RuntimeError as error:
        return str(error)
    return "no error"


def train_in_fp64(rank, paths):
    with GradwireState(socket=paths[rank], members=1, format="bf16") as state:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).double())
        model.register_comm_hook(state, allreduce_hook)
        for _ in range(3):
            model(torch.ones(1, 8).double()).sum().backward()
        return state.stats()


def join_badly(rank, paths):
    """The daemon of process 0 does not say whether its group has formats."""
    if rank == 0:
        def refused(*_):
            raise GradwireError(Status.UNAVAILABLE, "no status today")
        wire.why_not = refused
    try:
        with GradwireState(socket=paths[rank], members=1, format="int8") as state:
            state._reduce(0, torch.ones(10)).wait()
    except (GradwireError, RuntimeError) as error:
        return str(error)
    return "no error"


class Hook(unittest.TestCase):
    def test_buckets_travel_in_the_format_and_are_counted(self):
        with FakeDaemons(2) as daemons:
            for near, _, stats in run(train_in_format, daemons, 2):
                self.assertTrue(near)
                self.assertEqual(stats["format"], "int8")
                self.assertEqual(stats["format_ops"], {"int8": stats["ops"]})
                self.assertEqual(stats["format_bytes"], {"int8": stats["bytes"]})
                # A byte of four, and four of each block of 256. Two ranks send half of it twice.
                self.assertEqual(stats["wire_bytes_without"]["int8"], stats["bytes"])
                self.assertLess(stats["wire_bytes"]["int8"] / stats["bytes"], 0.2550)
                self.assertGreater(stats["wire_bytes"]["int8"] / stats["bytes"], 0.2539)
                self.assertEqual(stats["fell_back"], {})
                # DDP lays out its buckets anew after the first step.
                self.assertGreater(stats["residual_resets"], 0)
                self.assertGreater(stats["encoding_error"]["elements"], 0)

    def test_a_group_without_formats_goes_on_without(self):
        with FakeDaemons(2) as daemons:
            daemons.tell("no formats")
            for _, same, stats in run(train_in_format, daemons, 2):
                self.assertTrue(same)
                self.assertEqual(stats["format_ops"], {})
                why = "without format int8: its group has no wire formats: it was told so"
                self.assertEqual(stats["fell_back"], {why: stats["ops"]})

    def test_formats_that_differ_end_the_group_by_both_names(self):
        with FakeDaemons(2) as daemons:
            for text in run(train_in_two_formats, daemons, 2):
                self.assertIn("as bf16", text)
                self.assertIn("as int8", text)

    def test_one_that_cannot_tell_ends_the_group(self):
        with FakeDaemons(2) as daemons:
            texts = run(join_badly, daemons, 2)
        self.assertIn("no status today", texts[0])
        self.assertIn("rank 0 could not begin: no status today", texts[1])

    def test_other_types_go_as_they_are(self):
        with FakeDaemons(2) as daemons:
            for stats in run(train_in_fp64, daemons, 2):
                why = "without format bf16: elements of fp64: bf16 is for fp32"
                self.assertEqual(stats["fell_back"], {why: stats["ops"]})
                self.assertEqual((stats["format_ops"], stats["encoding_error"]), ({}, None))


class Residuals(unittest.TestCase):
    """Turns of a bucket, without a hook."""

    def setUp(self):
        self.daemons = FakeDaemons(2)
        self.addCleanup(self.daemons.kill)
        self.clients = open_clients(self.daemons)
        self.groups = form(self.clients)
        self.feedback = Feedback(self.clients[0], "int8", True)
        self.feedback.join(self.groups[0])
        self.parameters = [torch.nn.Parameter(torch.zeros(300)) for _ in range(3)]

    def tearDown(self):
        self.feedback.close()
        for handle in self.groups + self.clients:
            handle.close()

    def turn(self, numbers, well=True, index=0, writes=None):
        """An op on a bucket of these parameters. Returns what it read, as a copy."""
        own = [self.parameters[number] for number in numbers]
        turn = self.feedback.begin(index, torch.ones(300 * len(own)), own)
        before, after = turn.arrays
        before = None if before is None else before.copy()
        if writes is not None:
            after[:] = writes
        turn.end(well)
        return before

    def test_what_an_op_lost_is_read_by_the_next(self):
        self.assertIsNone(self.turn([0, 1], writes=1.5))
        for step in range(1, 6):
            self.assertTrue((self.turn([0, 1], writes=step) == (1.5 if step == 1 else
                                                               step - 1)).all())
        self.assertEqual(self.feedback.resets, 0)

    def test_of_one_that_failed_it_is_read_again(self):
        self.turn([0], writes=3.0)
        self.assertTrue((self.turn([0], well=False, writes=9.0) == 3.0).all())
        self.assertTrue((self.turn([0], writes=4.0) == 3.0).all())
        self.assertTrue((self.turn([0]) == 4.0).all())

    def test_it_is_dropped_if_the_bucket_has_other_parameters(self):
        self.turn([0, 1], writes=3.0)
        self.assertIsNone(self.turn([0, 2], writes=4.0))  # as many elements
        self.assertIsNone(self.turn([2, 0], writes=5.0))  # another order
        self.assertIsNone(self.turn([0, 1, 2], writes=6.0))
        self.assertIsNone(self.turn([0]))
        self.assertEqual(self.feedback.resets, 4)
        self.assertIsNone(self.turn([1], index=1))
        self.assertEqual(self.feedback.resets, 4)

    def test_it_stays_in_a_later_group(self):
        self.turn([0, 1], writes=3.0)
        self.feedback.join(form(self.clients, epoch=1)[0])
        self.assertTrue((self.turn([0, 1]) == 3.0).all())

    def test_a_bucket_that_is_under_way_is_busy(self):
        turn = self.feedback.begin(0, torch.ones(300), self.parameters[:1])
        with self.assertRaisesRegex(GradwireError, "bucket 0 was passed to the hook again"):
            self.feedback.begin(0, torch.ones(300), self.parameters[:1])
        turn.end(True)
        self.feedback.begin(0, torch.ones(300), self.parameters[:1]).end(True)

    def test_without_memory_it_goes_without_residuals(self):
        huge = torch.empty(1, dtype=torch.float32).expand(1 << 28)  # two of 1 GiB each
        with self.assertLogs("gradwire.torch", "WARNING"):
            turn = self.feedback.begin(0, huge, None)
        self.assertEqual(turn.arrays, (None, None))
        turn.end(True)
        why = "without residuals of int8: the daemon has no gradient memory left for them"
        self.assertEqual(self.feedback.stats()["fell_back"], {why: 1})
        self.assertIsNone(self.turn([0], writes=3.0))
        self.assertTrue((self.turn([0]) == 3.0).all())

    def test_without_room_to_ask_in_it_goes_without_residuals(self):
        full = GradwireError(Status.RESOURCE_EXHAUSTED, "not even a byte")
        with unittest.mock.patch.object(self.clients[0], "memory_device", side_effect=full):
            self.assertEqual(self.feedback.begin(0, torch.ones(300), None).arrays, (None, None))
        self.assertEqual(list(self.feedback.stats()["fell_back"].values()), [1])

    def test_another_bucket_with_its_number_leaves_it_alone(self):
        self.turn([0, 1], writes=3.0)
        self.assertIsNone(self.turn([2], writes=4.0))
        self.assertTrue((self.turn([0, 1]) == 3.0).all())
        self.assertTrue((self.turn([2]) == 4.0).all())
        self.assertEqual(self.feedback.resets, 0)

    def test_it_goes_with_its_model(self):
        self.turn([0, 1], writes=3.0)
        del self.parameters[:2]
        self.turn([0], writes=4.0)
        self.assertEqual(len(self.feedback._all()), 1)
        self.assertEqual(self.feedback.resets, 0)

    def test_it_makes_room_for_gradients(self):
        self.turn([0], writes=3.0)
        self.turn([1], writes=4.0)
        busy = self.feedback.begin(0, torch.ones(300), self.parameters[2:])
        with self.assertLogs("gradwire.torch", "WARNING"):
            self.assertTrue(self.feedback.give_up())
        # The youngest first, and not what an op uses.
        self.assertIsNone(self.turn([1]))
        self.assertTrue((self.turn([0]) == 3.0).all())
        self.assertTrue(self.feedback.give_up())
        self.assertFalse(self.feedback.give_up())
        busy.end(True)
        self.assertTrue(self.feedback.give_up())
        for number in range(3):
            turn = self.feedback.begin(0, torch.ones(300), [self.parameters[number]])
            self.assertEqual(turn.arrays, (None, None))
            turn.end(True)
        why = ("without residuals of int8: the daemon's gradient memory is needed for the "
               "gradients")
        self.assertEqual(self.feedback.stats()["fell_back"], {why: 3})

    def test_torch_without_memory_to_measure_in_is_said(self):
        self.feedback.sample_every = 1
        lacks = RuntimeError("CUDA out of memory")
        with unittest.mock.patch.object(wire, "bounds", side_effect=lacks):
            turn = self.feedback.begin(0, torch.ones(300), self.parameters[:1])
        turn.end(True)
        with unittest.mock.patch.object(self.feedback.tally, "measured", side_effect=lacks):
            self.turn([0])
        self.assertEqual(list(self.feedback.stats()["fell_back"].values()), [2])

    def test_what_is_lost_is_measured_against_its_bound(self):
        self.feedback.sample_every = 1
        values = torch.linspace(-3, 5, 300)
        turn = self.feedback.begin(0, values, self.parameters[:1])
        gradwire.round_trip(values.numpy(), "int8", residual=turn.arrays[1])
        lost = turn.arrays[1].copy()
        turn.end(True)
        error = self.feedback.stats()["encoding_error"]
        self.assertEqual(error["elements"], 300)
        self.assertEqual(error["largest"], float(numpy.abs(lost).max()))
        self.assertAlmostEqual(error["rms"], float(numpy.sqrt(numpy.square(lost).mean())), 7)
        self.assertLessEqual(error["largest"], error["largest_bound"])
        self.assertGreater(error["largest_share"], 0.9)
        self.assertLessEqual(error["largest_share"], 1)
        self.assertLess(error["rms"], error["rms_bound"])

    def test_hosts_that_only_sum_give_nothing_that_travels(self):
        self.feedback._group = types.SimpleNamespace(nranks=4, processes=4, members=2)
        self.feedback.took(torch.ones(512))
        stats = self.feedback.stats()
        self.assertEqual(stats["wire_bytes"], {"int8": 520})
        self.assertEqual(stats["wire_bytes_without"], {"int8": 2048})

    def test_other_members_have_none(self):
        group = types.SimpleNamespace(nranks=2, member=1, members=2)
        self.feedback._group = group
        self.assertEqual(self.feedback.begin(0, torch.ones(5), None).arrays, (None, None))


class Bounds(unittest.TestCase):
    def test_no_encoding_loses_more(self):
        generator = numpy.random.default_rng(7)
        for count in (1, 255, 256, 257, 5000):
            for size in (2.0**-149, 2.0**-140, 2.0**-126, 1e-3, 1.0, 1e30, 3e38):
                values = (generator.uniform(-1, 1, count) * size).astype(numpy.float32)
                for name in ("bf16", "int8"):
                    lost = numpy.empty(count, numpy.float32)
                    gradwire.round_trip(values, name, residual=lost)
                    bound = wire.bounds(name, torch.from_numpy(values)).double().numpy()
                    bounded = ~numpy.isnan(bound)
                    self.assertGreater(bounded.sum(), 0)
                    self.assertTrue((numpy.abs(lost[bounded]) <= bound[bounded]).all(),
                                    (name, count, size))

    def test_there_is_none_of_what_is_not_finite(self):
        values = torch.ones(600)
        values[3], values[300] = torch.inf, torch.nan
        bound = wire.bounds("int8", values)
        self.assertTrue(bound[:512].isnan().all())
        self.assertFalse(bound[512:].isnan().any())
        self.assertEqual(wire.bounds("bf16", values).isnan().sum().item(), 2)


class Asking(unittest.TestCase):
    def tearDown(self):
        for name in ("", "_FROM"):
            os.environ.pop("GRADWIRE_REDUCE_SCATTER_FORMAT" + name, None)

    def backend(self, **more):
        """What GroupFormats looks at, of a group of two ranks that has formats."""
        group = types.SimpleNamespace(nranks=2, members=1)
        engine = types.SimpleNamespace(tally=wire.Tally(), client=None)
        made = types.SimpleNamespace(_size=2, engine=engine,
                                     channel=types.SimpleNamespace(group=group))
        made.formats = wire.GroupFormats()
        made.formats._why_not = {"int8": None, "bf16": None}
        made.of = lambda collective, source, datatype=FP32, redop="sum": (
            made.formats.asked() and made.formats.of(
                made, collective, source, datatype, OPS[redop],
                source.numel() // (2 if collective == REDUCE_SCATTER else 1)))
        return made

    def test_within_the_context_and_this_thread_alone(self):
        backend, tensor = self.backend(), torch.ones(512)
        self.assertFalse(backend.of(ALL_REDUCE, tensor))
        with gradwire.torch.wire_format("int8"):
            self.assertEqual(backend.of(ALL_REDUCE, tensor), WIRES["int8"])
            with gradwire.torch.wire_format("bf16"):
                self.assertEqual(backend.of(REDUCE_SCATTER, tensor), WIRES["bf16"])
                with gradwire.torch.wire_format(None):
                    self.assertEqual(backend.of(ALL_REDUCE, tensor), 0)
            self.assertEqual(backend.of(ALL_REDUCE, tensor, redop="avg"), WIRES["int8"])
            self.assertEqual(backend.of(BROADCAST, tensor), 0)
            there = []
            thread = threading.Thread(target=lambda: there.append(backend.of(ALL_REDUCE, tensor)))
            thread.start()
            thread.join()
            self.assertFalse(there[0])
        self.assertFalse(backend.of(ALL_REDUCE, tensor))
        stats = backend.engine.tally.stats()
        self.assertEqual(stats["format_ops"], {"int8": 2, "bf16": 1})
        self.assertEqual(stats["wire_bytes"], {"int8": 2 * 520, "bf16": 512})
        self.assertEqual(stats["fell_back"], {})
        self.assertLessEqual(stats["encoding_error"]["largest_share"], 1)
        with self.assertRaisesRegex(ValueError, "the wire format is 'fp8'"):
            with gradwire.torch.wire_format("fp8"):
                pass

    def test_what_does_not_fit_goes_as_it_is_and_is_said_once(self):
        backend, tensor = self.backend(), torch.ones(64)
        with gradwire.torch.wire_format("bf16"):
            with self.assertLogs("gradwire.torch", "WARNING") as said:
                for _ in range(3):
                    self.assertEqual(backend.of(ALL_REDUCE, tensor, redop="max"), 0)
                    self.assertEqual(backend.of(ALL_REDUCE, tensor, DATATYPES["bf16"]), 0)
        self.assertEqual(len(said.output), 2)
        self.assertEqual(backend.engine.tally.stats()["fell_back"], {
            "without format bf16: redop max: a wire format is for sum and avg": 3,
            "without format bf16: elements of bf16: bf16 is for fp32": 3,
        })
        alone = self.backend()
        alone._size = 1
        with gradwire.torch.wire_format("int8"), self.assertLogs("gradwire.torch", "WARNING"):
            self.assertEqual(alone.of(ALL_REDUCE, tensor), 0)

    def test_the_environment_is_for_large_reduce_scatters_of_fp32(self):
        os.environ["GRADWIRE_REDUCE_SCATTER_FORMAT"] = "int8"
        os.environ["GRADWIRE_REDUCE_SCATTER_FORMAT_FROM"] = "4096"
        backend = self.backend()
        self.assertEqual(backend.of(REDUCE_SCATTER, torch.ones(1024)), WIRES["int8"])
        self.assertEqual(backend.of(REDUCE_SCATTER, torch.ones(1022)), 0)
        self.assertEqual(backend.of(REDUCE_SCATTER, torch.ones(4096).bfloat16(),
                                    DATATYPES["bf16"]), 0)
        self.assertEqual(backend.of(ALL_REDUCE, torch.ones(4096)), 0)
        with gradwire.torch.wire_format(None):
            self.assertEqual(backend.of(REDUCE_SCATTER, torch.ones(1024)), 0)
        self.assertEqual(backend.engine.tally.stats()["fell_back"], {})
        os.environ["GRADWIRE_REDUCE_SCATTER_FORMAT_FROM"] = "-1"
        with self.assertRaisesRegex(ValueError, "_FROM is '-1'"):
            wire.scatter_option()
        os.environ["GRADWIRE_REDUCE_SCATTER_FORMAT"] = "int4"
        with self.assertRaisesRegex(ValueError, "FORMAT is 'int4'"):
            wire.scatter_option()

    def test_why_not_is_what_the_daemon_says_of_the_group(self):
        with FakeDaemons(2) as daemons:
            clients = open_clients(daemons)
            groups = form(clients)
            self.assertIsNone(wire.why_not(clients[0], groups[0], "int8"))
            daemons.tell("no formats")
            self.assertIn("it was told so", wire.why_not(clients[1], groups[1], "int8"))
            groups[0].epoch = 5
            with self.assertRaisesRegex(GradwireError, "has no group .* of epoch 5"):
                wire.why_not(clients[0], groups[0], "int8")
            for handle in groups + clients:
                handle.close()


if __name__ == "__main__":
    unittest.main()
