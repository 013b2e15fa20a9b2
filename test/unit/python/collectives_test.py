#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The collectives besides all-reduce, of numpy arrays and torch tensors, against fake daemons: two
ranks of two members, so that processes are not ranks."""
import unittest

import numpy

import gradwire
from gradwire import GradwireError, Status
from support import FakeDaemons, form, open_clients

try:
    import torch
except ImportError:
    torch = None

COUNT = 50


class Collectives(unittest.TestCase):
    def setUp(self):
        self.daemons = FakeDaemons(2)
        self.addCleanup(self.daemons.__exit__)
        self.clients = open_clients(self.daemons, 2)
        self.groups = form(self.clients, 2)
        random = numpy.random.default_rng(3)
        self.blocks = random.integers(-1000, 1000, (4, COUNT)).astype("int32")
        self.wholes = random.integers(-1000, 1000, (4, 4 * COUNT)).astype("int32")
        self.sum = self.wholes.sum(axis=0, dtype="int32")

    def wait(self, works):
        return [work.wait(5.0) for work in works]

    def test_processes_are_numbered_through_the_group(self):
        self.assertEqual([g.process for g in self.groups], [0, 1, 2, 3])
        self.assertEqual([g.processes for g in self.groups], [4, 4, 4, 4])

    def test_all_gather(self):
        outs = [numpy.zeros((4, COUNT), "int32") for _ in self.groups]
        results = self.wait(
            [g.all_gather(b, o) for g, b, o in zip(self.groups, self.blocks, outs)])
        for result, out in zip(results, outs):
            self.assertIs(result, out)
            numpy.testing.assert_array_equal(out, self.blocks)

    def test_all_gather_in_place(self):
        for shared in (False, True):
            outs = [c.allocate(16 * COUNT).array("int32", 4 * COUNT) if shared
                    else numpy.zeros(4 * COUNT, "int32") for c in self.clients]
            for process, out in enumerate(outs):
                out.reshape(4, COUNT)[process] = self.blocks[process]
            given = [None if shared else o[p * COUNT:(p + 1) * COUNT] for p, o in enumerate(outs)]
            self.wait([g.all_gather(i, o) for g, i, o in zip(self.groups, given, outs)])
            for out in outs:
                numpy.testing.assert_array_equal(out.reshape(4, COUNT), self.blocks)
        self.assertEqual(self.clients[0].counters()["copies"], 2)

    def test_reduce_scatter(self):
        outs = [numpy.zeros(COUNT, "int32") for _ in self.groups]
        inputs = self.wholes.copy()
        self.wait([g.reduce_scatter(i, o) for g, i, o in zip(self.groups, inputs, outs)])
        numpy.testing.assert_array_equal(numpy.concatenate(outs), self.sum)
        numpy.testing.assert_array_equal(inputs, self.wholes)

    def test_reduce_scatter_in_place(self):
        inputs = self.wholes.copy()
        results = self.wait([g.reduce_scatter(i, op="sum") for g, i in zip(self.groups, inputs)])
        numpy.testing.assert_array_equal(numpy.concatenate(results), self.sum)
        for process, result in enumerate(results):
            self.assertEqual(result.size, COUNT)
            self.assertTrue(numpy.shares_memory(result, inputs[process]))
        for op, function in (("max", numpy.max), ("min", numpy.min)):
            results = self.wait(
                [g.reduce_scatter(i, op=op) for g, i in zip(self.groups, self.wholes.copy())])
            numpy.testing.assert_array_equal(
                numpy.concatenate(results), function(self.wholes, axis=0))

    def test_broadcast_of_any_type(self):
        for kind in ("int32", "float16", "bool", "complex128", "uint16", "U3", ">i4"):
            for root in range(4):
                arrays = [numpy.zeros(7, kind) for _ in self.groups]
                arrays[root][:] = (numpy.arange(7) * (root + 1)).astype(kind)
                expected = arrays[root].copy()
                results = self.wait([g.broadcast(a, root) for g, a in zip(self.groups, arrays)])
                for result, array in zip(results, arrays):
                    self.assertIs(result, array)
                    numpy.testing.assert_array_equal(array, expected)

    def test_all_gather_of_a_type_that_cannot_be_reduced(self):
        outs = [numpy.zeros((4, 3), bool) for _ in self.groups]
        rows = numpy.array([[i & 1, i & 2, 1] for i in range(4)], bool)
        self.wait([g.all_gather(r, o) for g, r, o in zip(self.groups, rows, outs)])
        for out in outs:
            numpy.testing.assert_array_equal(out, rows)

    def test_reduce(self):
        for root in range(4):
            arrays = self.wholes.copy()
            results = self.wait([g.reduce(a, root) for g, a in zip(self.groups, arrays)])
            for process, (result, array) in enumerate(zip(results, arrays)):
                if process == root:
                    numpy.testing.assert_array_equal(result, self.sum)
                else:
                    self.assertIsNone(result)
                    numpy.testing.assert_array_equal(array, self.wholes[process])
        out = numpy.zeros(4 * COUNT, "int32")
        self.wait([g.reduce(a, 2, out=out if g.process == 2 else None, op="max")
                   for g, a in zip(self.groups, self.wholes)])
        numpy.testing.assert_array_equal(out, self.wholes.max(axis=0))

    def test_barrier(self):
        works = [g.barrier() for g in self.groups[:3]]
        with self.assertRaises(GradwireError) as caught:
            works[0].wait(0.05)
        self.assertEqual(caught.exception.code, Status.TIMED_OUT)
        self.assertIn("barrier 1 of rank 0", caught.exception.text)
        works.append(self.groups[3].barrier())
        self.assertEqual(self.wait(works), [None] * 4)

    def test_what_does_not_fit_is_refused(self):
        group = self.groups[1]
        block, whole = self.blocks[1], self.wholes[1]
        for what, says in (
            (lambda: group.all_gather(block, whole[:-1]), "output must have 4 times"),
            (lambda: group.all_gather(block, whole.astype("float32")), "and its type"),
            (lambda: group.reduce_scatter(whole, block[:-1]), "input must have 4 times"),
            (lambda: group.reduce_scatter(whole[:-1]), "input must have 4 times"),
            (lambda: group.reduce_scatter(whole, block, op="xor"), "op is 'xor'"),
            (lambda: group.reduce(whole, 1, out=block), "output must have the input's size"),
            (lambda: group.broadcast(block, 4), "root is 4: it must be 0 to 3"),
            (lambda: group.reduce(block, -1), "root is -1"),
            (lambda: group.broadcast(block, 0, dtype="fp4"), "dtype is 'fp4'"),
            (lambda: group.barrier(tag=-1), "tag is -1"),
        ):
            with self.assertRaises(ValueError) as caught:
                what()
            self.assertIn(says, str(caught.exception))
        for what in (
            lambda: group.broadcast(numpy.array([object()])),
            lambda: group.broadcast([1, 2]),
            lambda: group.reduce_scatter(numpy.zeros(4, bool)),
            lambda: group.broadcast(block, "first"),
        ):
            with self.assertRaises(TypeError):
                what()
        read_only = whole.copy()
        read_only.flags.writeable = False
        with self.assertRaises(ValueError):
            group.all_gather(block, read_only)
        # In place, but in another process's block.
        with self.assertRaises(GradwireError) as caught:
            group.all_gather(whole[:COUNT], whole)
        self.assertEqual(caught.exception.code, Status.INVALID_ARGUMENT)
        self.assertIn("own block of the output", caught.exception.text)

    def test_the_library_knows_the_sizes_of_both_arrays(self):
        """What would get past the checks here is refused there, before anything is posted."""
        group = self.groups[1]
        block, whole = self.blocks[1], self.wholes[1]
        small = group._single(block, None, "all-gather")
        large = group._single(whole, None, "all-gather")
        flags = group._single(numpy.zeros(4 * COUNT, bool), None, "all-gather", True)
        self.assertEqual([b.nbytes for b in (small, large, flags)],
                         [4 * COUNT, 16 * COUNT, 4 * COUNT])
        for collective, root, source, target, says in (
            (gradwire.client.ALL_GATHER, 0, large, small,
             "the output of all-gather has 200 bytes (output_bytes) and needs 3200"),
            (gradwire.client.REDUCE_SCATTER, 0, small, small,
             "the input of reduce-scatter has 200 bytes (input_bytes) and needs 800"),
            (gradwire.client.BROADCAST, 1, large, small,
             "the output of broadcast has 200 bytes (output_bytes) and needs 800"),
        ):
            with self.assertRaises(GradwireError) as caught:
                group._post(collective, whole, block, source, target, source.count, 0, root=root)
            self.assertEqual(caught.exception.code, Status.INVALID_ARGUMENT)
            self.assertIn(says, caught.exception.text)
        self.assertEqual(self.clients[1].counters()["ops_posted"], 0)
        group.check()

    def test_a_wire_format_reaches_the_daemon_and_is_checked(self):
        values = self.blocks.astype("float32")
        for wire in ("same", "bf16", "int8"):
            works = [g.all_reduce(v.copy(), wire=wire) for g, v in zip(self.groups, values)]
            works += [g.reduce_scatter(numpy.tile(v, 4), v.copy(), op="avg", wire=wire)
                      for g, v in zip(self.groups, values)]
            works += [g.reduce(v.copy(), 1, wire=wire) for g, v in zip(self.groups, values)]
            for work in works:
                work.wait(5.0)
        group = self.groups[0]
        with self.assertRaises(ValueError) as caught:
            group.all_reduce(values[0], wire="fp8")
        self.assertIn("wire is 'fp8': it must be one of same, bf16, int8", str(caught.exception))
        with self.assertRaises(GradwireError) as caught:
            group.all_reduce(self.blocks[0], wire="int8")
        self.assertEqual(caught.exception.code, Status.UNSUPPORTED)
        works = [g.all_reduce(v, wire=wire)
                 for g, v, wire in zip(self.groups, values, ("int8", "int8", "int8", "bf16"))]
        for work in works:
            with self.assertRaises(GradwireError) as caught:
                work.wait(5.0)
            self.assertEqual(caught.exception.code, Status.MISMATCH)
            self.assertIn("fp32 as int8", caught.exception.text)
            self.assertIn("fp32 as bf16", caught.exception.text)

    def test_calls_that_differ_name_both(self):
        arrays = self.blocks.copy()
        works = [g.broadcast(a, int(g.process == 3)) for g, a in zip(self.groups, arrays)]
        for work in works:
            with self.assertRaises(GradwireError) as caught:
                work.wait(5.0)
            self.assertEqual(caught.exception.code, Status.MISMATCH)
            self.assertIn("from process 0", caught.exception.text)
            self.assertIn("from process 1", caught.exception.text)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_torch_tensors(self):
        blocks = [torch.arange(COUNT, dtype=torch.bfloat16) + p for p in range(4)]
        outs = [torch.zeros(4, COUNT, dtype=torch.bfloat16) for _ in range(4)]
        self.wait([g.all_gather(b, o) for g, b, o in zip(self.groups, blocks, outs)])
        for out in outs:
            self.assertTrue(torch.equal(out, torch.stack(blocks)))
        wholes = [torch.arange(4 * COUNT).float() * (p + 1) for p in range(4)]
        total = sum(wholes)
        results = self.wait([g.reduce_scatter(w, op="sum") for g, w in zip(self.groups, wholes)])
        self.assertTrue(torch.equal(torch.cat(results), total))
        flags = [torch.zeros(9, dtype=torch.bool) for _ in range(4)]
        flags[2][::2] = True
        self.wait([g.broadcast(f, 2) for g, f in zip(self.groups, flags)])
        for flag in flags:
            self.assertTrue(torch.equal(flag, flags[2]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
