#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradwire.round_trip(): the numpy reference's bits, through the C interface. Residuals of a group
of one rank."""
import pathlib
import sys
import unittest

import numpy

import gradwire
from gradwire import GradwireError, Status
from support import FakeDaemons, form, open_clients

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "reference"))
import formats as reference  # noqa: E402


def bits(values):
    return values.view(numpy.uint32).tolist()


class RoundTrips(unittest.TestCase):
    def test_it_gives_the_references_bits(self):
        generator = numpy.random.default_rng(1)
        for count in (0, 1, 255, 257, 5000):
            values = (generator.standard_normal(count) * 1e-3).astype(numpy.float32)
            for wire in reference.FORMATS:
                lost = numpy.ones(count, numpy.float32)
                result = gradwire.round_trip(values, wire, residual=lost)
                self.assertEqual(bits(result), bits(reference.round_trip(values, wire)))
                self.assertEqual(bits(lost), bits(reference.residual(values, wire)))

    def test_the_pages_inputs(self):
        for name, values in reference.ODD.items():
            for wire in reference.FORMATS:
                with self.subTest(name, wire=wire):
                    result = gradwire.round_trip(values, wire)
                    self.assertEqual(bits(result), bits(reference.round_trip(values, wire)))

    def test_bf16_elements_as_integers(self):
        values = numpy.arange(-300, 300, dtype=numpy.float32) / 7
        halves = reference.round_to_bf16(values)
        result = gradwire.round_trip(halves, "int8", dtype="bf16")
        wide = reference.round_trip(reference.widen(halves), "int8")
        self.assertEqual(result.tolist(), reference.round_to_bf16(wide).tolist())

    def test_in_place(self):
        values = numpy.linspace(-1, 1, 1000, dtype=numpy.float32)
        wanted = reference.round_trip(values, "int8")
        self.assertIs(gradwire.round_trip(values, "int8", out=values), values)
        self.assertEqual(bits(values), bits(wanted))

    def test_error_feedback_sums_to_the_truth(self):
        """What is lost comes later: the mean of many steps is that of the inputs."""
        values = numpy.full(512, 0.001, numpy.float32)
        values[::256] = 1.0
        lost = numpy.zeros(512, numpy.float32)
        total = numpy.zeros(512)
        for _ in range(1000):
            given = values + lost
            total += gradwire.round_trip(given, "int8", residual=lost)
        self.assertLess(abs(total / 1000 - values).max(), 1e-5)
        self.assertEqual(gradwire.round_trip(values, "int8")[1], 0)  # without, it is lost each time

    def test_refusals(self):
        values = numpy.zeros(4, numpy.float32)
        with self.assertRaisesRegex(ValueError, "wire is 'int4'"):
            gradwire.round_trip(values, "int4")
        with self.assertRaises(GradwireError) as caught:
            gradwire.round_trip(values.astype(numpy.float64), "int8")
        self.assertEqual(caught.exception.code, Status.UNSUPPORTED)
        with self.assertRaisesRegex(ValueError, "residual has 3 elements of fp32: it needs 4"):
            gradwire.round_trip(values, "int8", residual=numpy.zeros(3, numpy.float32))
        with self.assertRaisesRegex(ValueError, "out has 4 elements of fp64: it needs 4 of fp32"):
            gradwire.round_trip(values, "int8", out=values.astype(numpy.float64))
        values.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "out is read-only"):
            gradwire.round_trip(values, "int8", out=values)


class OneRank(unittest.TestCase):
    def test_residuals_stay_and_a_refused_call_writes_none(self):
        with FakeDaemons(1) as daemons, open_clients(daemons)[0] as client:
            group = form([client])[0]
            memory = client.allocate(4096)
            values, before, after, other = (
                memory.array("float32", 100, 1024 * at) for at in range(4))
            values[:], before[:], other[:] = 7, 3, 9
            group.all_reduce(values, wire="int8", residuals=(before, after)).wait(5.0)
            self.assertEqual((set(before), set(after)), ({3.0}, {3.0}))
            group.all_reduce(values, wire="int8", residuals=(None, after)).wait(5.0)
            self.assertEqual(set(after), {0.0})
            daemons.tell("hold")
            work = group.all_reduce(values)
            with self.assertRaises(GradwireError) as caught:
                group.all_reduce(other, wire="int8", residuals=(None, values))
            self.assertEqual(caught.exception.code, Status.BUSY)
            self.assertEqual(set(values), {7.0})
            daemons.tell("go")
            work.wait(5.0)
            group.close()


if __name__ == "__main__":
    unittest.main()
