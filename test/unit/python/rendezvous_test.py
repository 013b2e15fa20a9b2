#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradwire.rendezvous: stores, and the formation of groups through them."""
import datetime
import os
import tempfile
import threading
import time
import unittest

import numpy

import gradwire
from gradwire import GradwireError, Status, rendezvous
from support import FakeDaemons, form, open_clients


class Stores(unittest.TestCase):
    def check_store(self, store):
        store.set("a/b", b"\x00\xff value")
        self.assertEqual(store.get("a/b", 0.1), b"\x00\xff value")
        start = time.monotonic()
        with self.assertRaises(GradwireError) as caught:
            store.get("missing/7", 0.1)
        self.assertEqual(caught.exception.code, Status.TIMED_OUT)
        self.assertIn("missing/7", caught.exception.text)
        self.assertLess(time.monotonic() - start, 10.0)
        timer = threading.Timer(0.05, store.set, ("late", b"x"))
        timer.start()
        self.assertEqual(store.get("late", 5.0), b"x")
        timer.join()

    def test_dict(self):
        self.check_store(rendezvous.DictStore())

    def test_directory(self):
        with tempfile.TemporaryDirectory() as directory:
            self.check_store(rendezvous.DirectoryStore(directory))
            self.assertIn("a.b", os.listdir(directory))
            # A rank info has a secret.
            self.assertEqual(os.stat(os.path.join(directory, "a.b")).st_mode & 0o777, 0o600)

    def test_torch(self):
        try:
            import torch.distributed as dist
        except ImportError:
            self.skipTest("torch is not installed")
        arguments = {"timeout": datetime.timedelta(seconds=10)}
        # Debian 13's torch 2.6 asks for libuv, which it was built without.
        if "use_libuv" in (dist.TCPStore.__init__.__doc__ or ""):
            arguments["use_libuv"] = False
        store = dist.TCPStore("localhost", 0, 1, True, **arguments)
        client = rendezvous.TorchStore(store)
        client.set("a/b", b"\x00\xff value")
        self.assertEqual(client.get("a/b", 1.0), b"\x00\xff value")
        with self.assertRaises(GradwireError) as caught:
            client.get("missing/7", 0.1)
        self.assertEqual(caught.exception.code, Status.TIMED_OUT)


class Formation(unittest.TestCase):
    def setUp(self):
        self.daemons = FakeDaemons(2)
        self.addCleanup(self.daemons.__exit__)

    def test_two_ranks_of_two_members_through_a_directory(self):
        clients = open_clients(self.daemons, members=2)
        with tempfile.TemporaryDirectory() as directory:
            for epoch in (0, 1):
                store = rendezvous.DirectoryStore(directory)
                groups = form(clients, members=2, epoch=epoch, store=store)
                works = [g.all_reduce(numpy.full(3, 1 << i)) for i, g in enumerate(groups)]
                for work in works:
                    self.assertEqual(work.wait(5.0).tolist(), [15, 15, 15])
                self.assertEqual([g.rank for g in groups], [0, 0, 1, 1])
                self.assertEqual([g.member for g in groups], [0, 1, 0, 1])

    def test_a_process_that_does_not_come_is_named(self):
        client = gradwire.Client(self.daemons.paths[0])
        with self.assertRaises(GradwireError) as caught:
            rendezvous.form_group(client, rendezvous.DictStore(), 0, 2, timeout=0.2)
        self.assertIn("info/1/0", caught.exception.text)

    def test_members_of_a_rank_have_to_use_one_daemon(self):
        clients = open_clients(self.daemons)
        store = rendezvous.DictStore()
        store.set("gradwire/0/info/0/0", clients[0].describe())
        with self.assertRaises(GradwireError) as caught:
            rendezvous.form_group(clients[1], store, 0, 1, 1, 2, timeout=0.5)
        self.assertEqual(caught.exception.code, Status.MISMATCH)

    def test_ranks_are_checked(self):
        with self.assertRaises(ValueError):
            rendezvous.form_group(None, None, 2, 2)


if __name__ == "__main__":
    unittest.main()
