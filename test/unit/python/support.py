# SPDX-License-Identifier: BSD-3-Clause
"""Fake daemons for the tests of the Python package (test/unit/client/fake_daemon_main.cc)."""
import os
import shutil
import subprocess
import tempfile
import threading
import time

import gradwire
from gradwire import rendezvous


class FakeDaemons:
    """``count`` ranks' daemons in one process, which ends with this one."""

    def __init__(self, count=1):
        self.directory = tempfile.mkdtemp(prefix="gradwire-python-")
        self.paths = [os.path.join(self.directory, str(i)) for i in range(count)]
        self._process = subprocess.Popen(
            [os.environ["GRADWIRE_FAKE_DAEMON"]] + self.paths,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError("the fake daemons did not start")

    def tell(self, command):
        """hold, go, forget or remember: see fake_daemon_main.cc."""
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        time.sleep(0.05)

    def kill(self):
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        shutil.rmtree(self.directory)


def form(clients, members=1, epoch=0, store=None):
    """One group of all clients, [rank * members + member]."""
    store = store or rendezvous.DictStore()
    groups = [None] * len(clients)
    errors = []

    def run(i):
        try:
            groups[i] = rendezvous.form_group(
                clients[i],
                store,
                i // members,
                len(clients) // members,
                i % members,
                members,
                epoch=epoch,
                timeout=10.0,
            )
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return groups


def open_clients(daemons, members=1, **options):
    return [gradwire.Client(path, **options) for path in daemons.paths for _ in range(members)]
