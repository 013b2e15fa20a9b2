#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradwire.digest: results that differ are found, and the odd one is named. A bit is turned over on
purpose in one rank's result, between the all-reduce and its digest."""
import threading
import unittest

import numpy

from gradwire import GradwireError, Status, digest, rendezvous
from support import FakeDaemons, form, open_clients


class Verdicts(unittest.TestCase):
    def test_the_majority_is_right(self):
        self.assertIsNone(digest.verdict([7, 7, 7], 1, 3))
        self.assertEqual(
            digest.verdict([7, 8, 7], 1, 3), "the result of op 3 differs at rank 1"
        )
        self.assertEqual(
            digest.verdict([7, 7, 7, 9], 2, 3), "the result of op 3 differs at member 1 of rank 1"
        )

    def test_without_a_majority_all_are_named(self):
        text = digest.verdict([7, 8], 1, 4)
        self.assertIn("op 4", text)
        self.assertIn("rank 0, rank 1", text)

    def test_each_bit_counts(self):
        values = numpy.zeros(1000, dtype=numpy.float32)
        before = digest.digest(values).tolist()
        for at in (0, 999):
            other = values.copy()
            other.view(numpy.uint32)[at] ^= 1
            self.assertNotEqual(digest.digest(other).tolist(), before)
        self.assertEqual(digest.digest(values.copy()).tolist(), before)


class Comparisons(unittest.TestCase):
    def compare(self, nranks, planted):
        """What each rank's comparisons of three ops came to; `planted`: rank whose second result
        is damaged."""
        with FakeDaemons(nranks) as daemons:
            store = rendezvous.DictStore()
            results = [None] * nranks

            def one(rank, client):
                group = rendezvous.form_group(client, store, rank, nranks, prefix="g")
                digests = digest.Digests(client, group, store, 0, "g")
                try:
                    for op in (1, 2, 3):
                        values = numpy.full(5000, rank + op, dtype=numpy.float32)
                        group.all_reduce(values).wait(20.0)
                        if rank == planted and op == 2:
                            values.view(numpy.uint32)[4321] ^= 1
                        digests.compare(values, op, 20.0)
                    results[rank] = "equal"
                except GradwireError as error:
                    results[rank] = error
                digests.close()
                group.close()

            clients = open_clients(daemons)
            threads = [
                threading.Thread(target=one, args=pair) for pair in enumerate(clients)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for client in clients:
                client.close()
            return results

    def test_equal_results_are_equal(self):
        self.assertEqual(self.compare(3, None), ["equal"] * 3)

    def test_a_damaged_result_is_found_and_its_rank_named(self):
        for error in self.compare(3, 1):
            self.assertIsInstance(error, GradwireError)
            self.assertEqual(error.code, Status.ABORTED)
            self.assertIn("the result of op 2 differs at rank 1", error.text)

    def test_of_two_both_are_named(self):
        for error in self.compare(2, 0):
            self.assertIn("rank 0, rank 1", error.text)


if __name__ == "__main__":
    unittest.main()
