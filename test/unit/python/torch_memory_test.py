#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Gradient memory that gradwire.torch keeps, for later tensors and for the hook's buckets, goes
back if something else needs it."""
import ctypes
import gc
import sys
import threading
import unittest

try:
    import torch
except ImportError:
    print("SKIP: torch is not installed")
    sys.exit(77)

from gradwire import GradwireError
from gradwire._native import Status
from gradwire.torch import GradwireState
from gradwire.torch.feedback import Feedback
from gradwire.torch.memory import Pool


class Memory:
    """What Client.allocate() returns."""

    device = None

    def __init__(self, client, nbytes):
        self.client, self.nbytes = client, nbytes
        self.kept = (ctypes.c_char * nbytes)()
        self.address = ctypes.addressof(self.kept)
        client.used += nbytes

    def __del__(self):
        self.client.used -= self.nbytes


class Daemon:
    def __init__(self, limit):
        self.limit, self.used = limit, 0

    def allocate(self, nbytes):
        if self.used + nbytes > self.limit:
            raise GradwireError(Status.RESOURCE_EXHAUSTED, "it has %d" % self.used)
        return Memory(self, nbytes)


class Lazy:
    """Memory of a daemon that has very much of it, and whose bytes nobody touches."""

    device = None

    def __init__(self, nbytes, number):
        self.nbytes, self.address = nbytes, number << 50


class Extension:
    """The part of the C++ extension that says what torch's tensors gave back."""

    def __init__(self):
        self.back = []

    def returned(self):
        back, self.back = self.back, []
        return back or None


class PoolTest(unittest.TestCase):
    def test_what_is_lent_comes_back(self):
        daemon = Daemon(64 << 20)
        pool = Pool(daemon)
        pool.extension = extension = Extension()
        spare = pool.spare()
        self.assertEqual(daemon.used, 32 << 20)
        first, second = pool.lend(5 << 20), pool.lend(70000)
        self.assertEqual(pool.lent(), (2, (6 << 20) + 73728))  # whole hugepages
        self.assertIsNone(pool.lend(28 << 20))
        extension.back = [first, second]
        self.assertEqual(pool.lent(), (0, 0))
        self.assertEqual(pool.lend(5 << 20), first)
        extension.back = [first]
        # What it keeps goes back if more is asked for.
        self.assertIsNotNone(pool.lend(28 << 20))
        del spare
        gc.collect()
        self.assertEqual(daemon.used, 28 << 20)

    def test_many_that_are_lent_are_in_few_regions(self):
        daemon, asked = Daemon(1 << 40), []
        daemon.allocate = lambda nbytes: asked.append(nbytes) or Lazy(nbytes, len(asked))
        pool = Pool(daemon)
        pool.extension = Extension()
        addresses = {pool.lend(25 << 20) for _ in range(400)}
        self.assertEqual(len(addresses), 400)
        self.assertLess(len(asked), 32)
        self.assertLess(sum(asked), 1.25 * 400 * (26 << 20))

    def test_a_pool_may_end_before_what_it_lent(self):
        daemon, extension = Daemon(64 << 20), Extension()
        pool = Pool(daemon)
        pool.extension = extension
        address = pool.lend(4 << 20)
        del pool
        gc.collect()
        self.assertEqual(daemon.used, 4 << 20)
        other = Pool(daemon)
        other.extension = extension
        extension.back = [address]
        self.assertEqual(other.lent(), (0, 0))
        gc.collect()
        self.assertEqual(daemon.used, 0)

    def test_memory_that_no_tensor_has_goes_back(self):
        daemon = Daemon(64 << 20)
        pool = Pool(daemon)
        small = [pool.tensor(torch.uint8, 65536) for _ in range(40)]  # of two slabs
        for mb in (6, 8, 10):
            large = pool.tensor(torch.uint8, mb << 20)
        del large
        gc.collect()
        self.assertEqual(daemon.used, (4 + 24) << 20)
        self.assertTrue(pool.shrink())
        self.assertEqual(daemon.used, 4 << 20)  # of the slabs tensors have places
        self.assertFalse(pool.shrink())
        del small[1:]
        gc.collect()
        self.assertTrue(pool.shrink())
        self.assertEqual(daemon.used, 2 << 20)
        del small
        gc.collect()
        self.assertTrue(pool.shrink())
        self.assertEqual(daemon.used, 0)

    def test_what_is_kept_makes_room_for_another_size(self):
        daemon = Daemon(32 << 20)
        pool = Pool(daemon)
        for mb in (6, 10, 14, 30):
            self.assertEqual(pool.tensor(torch.uint8, mb << 20).numel(), mb << 20)
        small = [pool.tensor(torch.uint8, 65536)]
        self.assertIsNone(pool.tensor(torch.uint8, 32 << 20))
        self.assertEqual(len(small), 1)


class BucketTest(unittest.TestCase):
    def setUp(self):
        self.state = GradwireState.__new__(GradwireState)
        self.state._lock, self.state._buckets = threading.Lock(), {}
        self.state.client = self.daemon = Daemon(100)
        self.state._feedback = Feedback(self.daemon, None, True)

    def test_one_that_grows_gives_its_memory_back_first(self):
        self.state._claim(0, 40).busy = False
        self.state._claim(0, 80).busy = False
        self.assertEqual(self.daemon.used, 80)
        with self.assertRaisesRegex(GradwireError, "it has 0"):
            self.state._claim(0, 101)
        self.state._claim(0, 40).busy = False
        self.assertEqual(self.daemon.used, 40)

    def test_after_the_end_there_is_none_and_it_is_said(self):
        self.state.client = self.state.group = None
        for call in (lambda: self.state._reduce(0, torch.ones(3)), self.state.stats):
            with self.assertRaisesRegex(GradwireError, "has no group any more: it was closed"):
                call()


if __name__ == "__main__":
    unittest.main()
