#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradwire.torch: works that end after others, and the threads that run callbacks. Without a
daemon."""
import sys
import threading
import types
import unittest

try:
    import torch
except ImportError:
    print("SKIP: torch is not installed")
    sys.exit(77)

from gradwire import GradwireError
from gradwire._native import Status
from gradwire.torch.all_work import AllWork
from gradwire.torch.callbacks import Callbacks
from gradwire.torch.work import GradwireWork, behind

LONG_S = 60.0


class CallbacksTest(unittest.TestCase):
    def setUp(self):
        self.callbacks = Callbacks()
        self.addCleanup(self.callbacks.stop)

    def test_one_that_waits_for_a_later_one_goes_on(self):
        """Any number of them: each waits for the one that is given after it."""
        events = [threading.Event() for _ in range(41)]
        waited = []

        def give(number):
            def call():
                events[number].set()
                if number + 1 < len(events):
                    waited.append(events[number + 1].wait(LONG_S))

            self.callbacks.give(call)

        for number in range(len(events)):
            give(number)
        self.assertTrue(events[-1].wait(LONG_S))
        self.callbacks.stop()
        self.assertTrue(all(waited))

    def test_they_begin_in_order_and_an_error_stops_none(self):
        done, order = threading.Event(), []

        def fail():
            order.append(0)
            raise KeyError("a callback's own")

        with self.assertLogs("gradwire.torch", "ERROR"):
            self.callbacks.give(fail)
            self.callbacks.give(lambda: (order.append(1), done.set()))
            self.assertTrue(done.wait(LONG_S))
        self.assertEqual(sorted(order), [0, 1])

    def test_threads_end_that_are_not_needed(self):
        everyone = threading.Barrier(9)
        for _ in range(8):
            self.callbacks.give(lambda: everyone.wait(LONG_S))
        self.assertEqual(len(self.callbacks._threads), 8)
        everyone.wait(LONG_S)
        self.callbacks.stop()
        self.assertEqual(len(self.callbacks._threads), 0)


class WorksTest(unittest.TestCase):
    def setUp(self):
        self.engine = types.SimpleNamespace(
            callbacks=Callbacks(), watch=lambda ops: None)
        self.addCleanup(self.engine.callbacks.stop)

    def work(self, name="a call", tensors=(), **more):
        return GradwireWork(self.engine, lambda: name, list(tensors), LONG_S, **more)

    def test_one_that_follows_ends_after_the_others(self):
        first, failed, over, barrier = [self.work() for _ in range(4)]
        over.seal()
        barrier.follow_all([first, failed, over])
        barrier.seal()
        self.assertFalse(barrier.over)
        first.seal()
        self.assertFalse(barrier.over)
        failed.add(object())
        failed.seal()
        failed.op_ended(ValueError("the earlier call's own"))
        self.assertTrue(barrier.over)
        self.assertIsNone(barrier.error)

    def test_all_works_fail_with_one(self):
        works = [self.work(tensors=[torch.zeros(1)]) for _ in range(3)]
        works[1].add(object())
        future = AllWork(works).get_future()
        for work in works:
            work.seal()
        self.assertFalse(future.done())
        works[1].op_ended(GradwireError(Status.ABORTED, "gone"))
        with self.assertRaisesRegex(RuntimeError, "gone"):
            future.wait()

    def test_a_callback_may_wait_for_another_future(self):
        first, second = self.work(tensors=[torch.ones(2)]), self.work(tensors=[torch.ones(3)])
        got = first.get_future().then(lambda f: f.value()[0].numel() + second.get_future().wait()[
            0].numel())
        first.seal()  # here its callback would have stood still, and with it this thread
        second.seal()
        self.assertEqual(got.wait(), 5)

    def test_no_callback_runs_within_a_call_of_the_users(self):
        work, threads = self.work(), []
        said = work.get_future().then(lambda _: threads.append(threading.current_thread()))
        work.seal()
        self.assertTrue(work.wait())
        said.wait()
        self.assertNotIn(threading.current_thread(), threads)

    def test_whoever_has_waited_finds_the_future_done(self):
        for _ in range(200):
            work = self.work()
            future = work.get_future()
            work.seal()
            work.wait()
            self.assertTrue(future.done())

    def test_what_is_behind_torchs_holder(self):
        work = self.work()
        work.number = 17
        holder = types.SimpleNamespace(get_future=lambda: work.get_future())
        self.assertIs(behind(holder), work)
        self.assertEqual(behind(holder)._get_sequence_number(), 17)
        self.assertIsNone(work._future)  # to ask changes nothing
        self.assertIsNone(behind(types.SimpleNamespace(get_future=torch.futures.Future)))


if __name__ == "__main__":
    unittest.main()
