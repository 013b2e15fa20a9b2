#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradwire.Client, Memory, Group and Work against fake daemons."""
import gc
import os
import pickle
import select
import time
import unittest

import numpy

import gradwire
from gradwire import GradwireError, Status
from support import FakeDaemons, form, open_clients


def ring_sum(inputs):
    """The sum of float32 arrays in ring order: segment s starts at rank s."""
    nranks, count = len(inputs), inputs[0].size
    segment = -(-(-(-count // nranks)) // 16) * 16
    result = numpy.empty_like(inputs[0])
    for s in range(nranks):
        part = slice(s * segment, min(count, (s + 1) * segment))
        total = inputs[s][part].copy()
        for i in range(1, nranks):
            total = total + inputs[(s + i) % nranks][part]
        result[part] = total
    return result


class Ops(unittest.TestCase):
    def setUp(self):
        self.daemons = FakeDaemons(3)
        self.addCleanup(self.daemons.__exit__)
        self.clients = open_clients(self.daemons)
        self.groups = form(self.clients)

    def reduce(self, arrays, **options):
        works = [group.all_reduce(a, **options) for group, a in zip(self.groups, arrays)]
        return [work.wait(5.0) for work in works]

    def test_private_arrays_are_summed_in_ring_order(self):
        random = numpy.random.default_rng(1)
        inputs = [random.standard_normal(1001, dtype=numpy.float32) for _ in range(3)]
        expected = ring_sum(inputs)
        arrays = [a.copy() for a in inputs]
        results = self.reduce(arrays)
        for array, result in zip(arrays, results):
            self.assertIs(array, result)
            self.assertEqual(array.tobytes(), expected.tobytes())
        counters = self.clients[0].counters()
        self.assertEqual(counters["copies"], 2)
        self.assertEqual(counters["copied_bytes"], 2 * 4004)

    def test_shared_arrays_are_not_copied(self):
        arrays = [c.allocate(4096).array("float32", 1000) for c in self.clients]
        for i, array in enumerate(arrays):
            array[:] = numpy.arange(1000) * (i + 1)
        self.reduce(arrays)
        numpy.testing.assert_array_equal(arrays[1], numpy.arange(1000, dtype="float32") * 6)
        self.assertEqual(self.clients[1].counters()["copies"], 0)

    def test_every_numpy_type_and_op(self):
        for name in ("float16", "float32", "float64", "int8", "uint8", "int32", "int64"):
            inputs = [numpy.array([1, 2, 3 + i], dtype=name) for i in range(3)]
            for op, expected in (
                ("sum", [3, 6, 12]),
                ("avg", [1, 2, 4]),
                ("min", [1, 2, 3]),
                ("max", [1, 2, 5]),
                ("prod", [1, 8, 60]),
            ):
                outputs = [numpy.zeros(3, dtype=name) for _ in inputs]
                works = [
                    g.all_reduce(a, op=op, out=o)
                    for g, a, o in zip(self.groups, inputs, outputs)
                ]
                for work, output in zip(works, outputs):
                    self.assertIs(work.wait(5.0), output)
                    self.assertEqual(output.tolist(), expected, (name, op))

    def test_bf16_as_16_bit_integers(self):
        one_and_a_half = 0x3FC0
        arrays = [numpy.full(5, one_and_a_half, dtype="uint16") for _ in range(3)]
        with self.assertRaises(TypeError):
            self.groups[0].all_reduce(arrays[0])
        self.reduce(arrays, dtype="bf16")
        self.assertEqual(arrays[2].tolist(), [0x4090] * 5)  # 4.5

    def test_what_cannot_be_reduced_is_refused(self):
        group = self.groups[0]
        with self.assertRaisesRegex(TypeError, "complex64"):
            group.all_reduce(numpy.zeros(2, dtype="complex64"))
        with self.assertRaisesRegex(ValueError, "contiguous"):
            group.all_reduce(numpy.zeros((4, 4))[:, 1])
        with self.assertRaisesRegex(ValueError, "3 elements of fp32 cannot be reduced into 2"):
            group.all_reduce(numpy.zeros(3, "float32"), out=numpy.zeros(2, "float32"))
        with self.assertRaisesRegex(ValueError, "op is 'mean'"):
            group.all_reduce(numpy.zeros(3), op="mean")
        with self.assertRaisesRegex(TypeError, "list"):
            group.all_reduce([1, 2])
        frozen = numpy.zeros(3)
        frozen.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "read-only"):
            group.all_reduce(frozen)

    def test_what_does_not_fit_the_c_interface_is_named(self):
        array = numpy.ones(4)
        group = self.groups[0]
        for bad in (-1, 2**32, 2**70):
            with self.assertRaisesRegex(ValueError, "tag is %d: it must be 0 to 4294967295" % bad):
                group.all_reduce(array, tag=bad)
        for bad in ("3", 1.0, None):
            with self.assertRaisesRegex(TypeError, "tag is %r: it must be an integer" % bad):
                group.all_reduce(array, tag=bad)
        with self.assertRaisesRegex(ValueError, "op is None: it must be one of sum"):
            group.all_reduce(array, op=None)
        with self.assertRaisesRegex(ValueError, "dtype is 'float31': it must be one of fp32"):
            group.all_reduce(array, dtype="float31")
        client = self.clients[0]
        for bad in (-1, 2**64, 2**70):
            with self.assertRaisesRegex(ValueError, "nbytes is %d: it must be 0 to" % bad):
                client.allocate(bad)
        with self.assertRaisesRegex(TypeError, "nbytes is '4K': it must be an integer"):
            client.allocate("4K")
        with self.assertRaisesRegex(ValueError, "epoch is -1"):
            client.join(1, -1, 0, [client.describe()])
        with self.assertRaisesRegex(ValueError, "rank is 65536"):
            client.join(1, 0, 65536, [client.describe()])
        with self.assertRaisesRegex(ValueError, "spin_us is -1"):
            gradwire.Client(self.daemons.paths[0], spin_us=-1)
        works = [g.all_reduce(array.copy(), tag=2**32 - 1) for g in self.groups]
        for bad in (None, "5"):
            with self.assertRaisesRegex(TypeError, "timeout is %r: it must be a number" % bad):
                works[0].wait(bad)
        for work in works:
            self.assertEqual(work.wait(5).tolist(), [3.0] * 4)

    def test_a_timeout_leaves_the_op_running(self):
        arrays = [numpy.ones(4) for _ in range(3)]
        work = self.groups[0].all_reduce(arrays[0], tag=3)
        self.assertFalse(work.is_done())
        start = time.monotonic()
        with self.assertRaises(GradwireError) as caught:
            work.wait(0.1)
        self.assertLess(time.monotonic() - start, 10.0)
        self.assertEqual(caught.exception.code, Status.TIMED_OUT)
        self.assertIn("tag 3", caught.exception.text)
        others = [g.all_reduce(a, tag=3) for g, a in zip(self.groups[1:], arrays[1:])]
        self.assertEqual(work.wait(5.0).tolist(), [3.0] * 4)
        self.assertTrue(work.is_done())
        self.assertEqual(work.op_seq, 1)
        for other in others:
            other.wait(5.0)

    def test_an_abort_is_raised_on_every_rank(self):
        work = self.groups[0].all_reduce(numpy.ones(4))
        self.groups[2].abort("out of memory")
        with self.assertRaisesRegex(GradwireError, "out of memory") as caught:
            work.wait(5.0)
        self.assertEqual(caught.exception.code, Status.ABORTED)
        for group in self.groups:
            deadline = time.monotonic() + 20
            with self.assertRaisesRegex(GradwireError, "out of memory"):
                while time.monotonic() < deadline:
                    group.check()
            group.leave()

    def test_completion_fd(self):
        fd = self.clients[0].completion_fd()
        work = self.groups[0].all_reduce(numpy.ones(1))
        self.assertEqual(select.select([fd], [], [], 0.02)[0], [])
        others = [g.all_reduce(numpy.ones(1)) for g in self.groups[1:]]
        self.assertEqual(select.select([fd], [], [], 20.0)[0], [fd])
        self.assertTrue(work.is_done())
        self.assertEqual(select.select([fd], [], [], 0)[0], [])
        for other in others:
            other.wait(5.0)

    def test_the_daemons_death_is_unavailable_at_once(self):
        work = self.groups[0].all_reduce(numpy.ones(1))
        self.daemons.kill()
        start = time.monotonic()
        with self.assertRaises(GradwireError) as caught:
            work.wait(20.0)
        self.assertLess(time.monotonic() - start, 10.0)
        self.assertEqual(caught.exception.code, Status.UNAVAILABLE)
        with self.assertRaises(GradwireError):
            self.clients[0].allocate(1)

    def test_torch_tensors(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64):
            tensors = [torch.full((2, 3), 1.5).to(dtype) for _ in range(3)]
            expected = tensors[0] * 3
            self.reduce(tensors)
            for tensor in tensors:
                self.assertTrue(torch.equal(tensor, expected), dtype)
        shared = [c.allocate(64).tensor(torch.bfloat16, 8) for c in self.clients]
        copies = self.clients[0].counters()["copies"]
        for tensor in shared:
            tensor.fill_(2.0)
        self.reduce(shared)
        self.assertEqual(shared[0].tolist(), [6.0] * 8)
        self.assertEqual(self.clients[0].counters()["copies"], copies)
        with self.assertRaisesRegex(ValueError, "contiguous"):
            self.groups[0].all_reduce(torch.zeros(4, 4)[:, 1])


class Lifetimes(unittest.TestCase):
    def setUp(self):
        self.daemons = FakeDaemons(1)
        self.addCleanup(self.daemons.__exit__)
        self.client = gradwire.Client(self.daemons.paths[0])
        self.group = form([self.client])[0]

    def test_views_keep_memory_alive(self):
        memory = self.client.allocate(5000)
        self.assertEqual(len(memory), 8192)
        array = memory.array("int32", 10, offset=40)
        self.assertEqual(array.ctypes.data, memory.address + 40)
        self.assertEqual(array.tolist(), [0] * 10)
        with self.assertRaises(GradwireError) as caught:
            memory.free()
        self.assertEqual(caught.exception.code, Status.BUSY)
        del memory
        gc.collect()
        array[:] = 7
        self.assertEqual(self.group.all_reduce(array).wait(5.0).tolist(), [7] * 10)
        memory = self.client.allocate(1)
        memory.free()
        memory.free()
        with self.assertRaises(GradwireError):
            memory.array()

    def test_memory_of_a_forgotten_op_is_held_until_the_op_is_done(self):
        self.daemons.tell("hold")
        array = self.client.allocate(4096).array("float32")
        self.group.all_reduce(array)
        del array
        gc.collect()
        self.assertEqual(len(self.client._unfreed), 1)
        self.daemons.tell("go")
        self.client.allocate(1)
        self.assertEqual(self.client._unfreed, [])

    def test_views_outlive_a_closed_client(self):
        array = self.client.allocate(100).array()
        work = self.group.all_reduce(array)
        work.wait(5.0)
        self.client.close()
        array[:] = 1
        with self.assertRaisesRegex(GradwireError, "closed"):
            self.group.all_reduce(array)
        with self.assertRaisesRegex(GradwireError, "closed"):
            self.client.allocate(1)

    def test_a_forked_child_has_no_part(self):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                self.client.allocate(1)
            except GradwireError as error:
                code = 0 if error.code == Status.UNAVAILABLE and "fork" in error.text else 2
            os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(self.group.all_reduce(numpy.ones(2)).wait(5.0).tolist(), [1.0, 1.0])

    def test_info_status_and_errors(self):
        self.assertEqual(self.client.info()["max_payload_bytes"], 8192)
        status = gradwire.daemon_status(self.daemons.paths[0])
        self.assertEqual(status["daemon"]["version"], "fake")
        with self.assertRaises(GradwireError) as caught:
            gradwire.Client("/nonexistent/socket")
        self.assertEqual(caught.exception.code, Status.UNAVAILABLE)
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((again.code, again.text), (caught.exception.code, caught.exception.text))
        with self.assertRaises(ValueError):
            self.group.all_reduce(numpy.ones(1)).wait(-1)

    def test_the_environment_names_the_socket(self):
        os.environ["GRADWIRE_SOCKET"] = self.daemons.paths[0]
        self.addCleanup(os.environ.pop, "GRADWIRE_SOCKET")
        with gradwire.Client() as client:
            self.assertEqual(len(client.describe()), 512)

    def test_what_a_job_wants_of_its_packets_is_in_its_entry_and_its_join(self):
        key = bytes(range(100, 132))
        with gradwire.Client(self.daemons.paths[0]) as client:
            self.assertFalse(any(client.describe()[280:]))
            entry = client.describe(security="encrypt", job_key=key)
            # As the fake daemon has them: the wish, and the key's first bytes for its id.
            self.assertEqual((entry[282], entry[368:376]), (2, key[:8]))
            group = client.join(77, 1, 0, [entry], security="encrypt", job_key=key)
            self.assertEqual(group.rank, 0)
            os.environ["GRADWIRE_SECURITY"] = "authenticate"
            self.addCleanup(os.environ.pop, "GRADWIRE_SECURITY")
            self.assertEqual(client.describe()[282], 1)
            self.assertEqual(client.describe(security="encrypt")[282], 2)
            for wrong in ({"security": "tls"}, {"job_key": key[1:]}, {"job_key": "text"}):
                with self.assertRaises(ValueError):
                    client.describe(**wrong)


if __name__ == "__main__":
    unittest.main()
