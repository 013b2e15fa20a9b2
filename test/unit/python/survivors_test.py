#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradwire.survivors: the agreement of those that are left of an aborted group."""
import tempfile
import threading
import time
import unittest

from gradwire import GradwireError, Status, rendezvous, survivors


def together(store, base, places, nranks, members, **options):
    """agree() in a thread for each (rank, member, seconds of delay); what each got, or an error."""
    results = {}

    def one(rank, member, delay_s):
        time.sleep(delay_s)
        report = {"progress": 10 * rank + member}
        try:
            results[rank, member] = survivors.agree(
                store, base, rank, nranks, member, members, report, **options
            )
        except GradwireError as error:
            results[rank, member] = error

    threads = [threading.Thread(target=one, args=place) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class Agreement(unittest.TestCase):
    def stores(self):
        with tempfile.TemporaryDirectory() as directory:
            yield rendezvous.DirectoryStore(directory)
        yield rendezvous.DictStore()

    def test_a_claim_is_one_process_only(self):
        for store in self.stores():
            self.assertTrue(store.claim("a/leader"))
            self.assertFalse(store.claim("a/leader"))
            self.assertTrue(store.claim("b/leader"))

    def test_a_rank_that_is_known_to_be_lost_is_not_waited_for(self):
        for store in self.stores():
            began = time.monotonic()
            results = together(store, "x", [(0, 0, 0), (2, 0, 0.1)], 3, 1, lost=1, patience=20.0)
            self.assertLess(time.monotonic() - began, 15.0)
            for result in results.values():
                self.assertEqual(result.ranks, [0, 2])
                self.assertEqual(
                    result.reports, {(0, 0): {"progress": 0}, (2, 0): {"progress": 20}}
                )

    def test_another_that_is_lost_too_is_waited_for_no_longer_than_patience(self):
        results = together(
            rendezvous.DictStore(), "x", [(0, 0, 0), (3, 0, 0)], 4, 1, lost=1, patience=0.5
        )
        self.assertEqual([r.ranks for r in results.values()], [[0, 3], [0, 3]])

    def test_a_rank_without_all_its_members_does_not_go_on(self):
        places = [(0, 0, 0), (0, 1, 0), (1, 0, 0), (2, 0, 0), (2, 1, 0)]
        results = together(rendezvous.DictStore(), "x", places, 3, 2, patience=0.5)
        self.assertEqual(results[0, 1].ranks, [0, 2])
        self.assertEqual(results[1, 0].code, Status.NOT_FOUND)

    def test_who_comes_late_is_told_so(self):
        results = together(
            rendezvous.DictStore(), "x", [(0, 0, 0), (1, 0, 1.0)], 2, 1, patience=0.2
        )
        self.assertEqual(results[0, 0].ranks, [0])
        self.assertIn("rank 1 is not among those that go on, [0]", results[1, 0].text)

    def test_a_decider_that_is_lost_ends_in_an_error(self):
        store = rendezvous.DictStore()
        self.assertTrue(store.claim("x/decides"))
        results = together(store, "x", [(0, 0, 0)], 2, 1, patience=0.1, timeout=0.1)
        self.assertEqual(results[0, 0].code, Status.TIMED_OUT)

    def test_the_lost_rank_is_read_from_the_reason(self):
        for text, rank in (
            ("rank 12 was silent for 2007 ms, op 8 (seen by rank 2)", 12),
            ("a client process of rank 1 died: hung up (seen by rank 1)", 1),
            ("rank 2 left the group: member 0 (pid 7) closed its client (seen by rank 2)", 2),
            ("rank 2 left the group: member 0 (pid 7) left, member 1 (pid 8) did not", None),
            ("the daemon of rank 3 was stopped, op 4", 3),
            ("a client of rank 1 aborted the group: no", None),
            ("calls that do not fit together, op 1", None),
        ):
            self.assertEqual(survivors.lost_rank(text), rank)


if __name__ == "__main__":
    unittest.main()
