# SPDX-License-Identifier: BSD-3-Clause
"""How the processes of a job find each other: through a store that the job has anyway.

A store has ``set(key, value)`` and ``get(key, timeout)``, bytes in and out; ``get`` waits for the
key and raises TIMED_OUT; ``claim(key)`` is true for the first who calls it. Each process writes
what its daemon says of itself, rank 0 writes the group's random id, and all read all.
"""
import os
import secrets
import tempfile
import threading
import time

from ._native import GradwireError, Status


def _timed_out(key, timeout, where):
    return GradwireError(
        Status.TIMED_OUT,
        "%s was not written to %s within %.1f s: is that process running?" % (key, where, timeout),
    )


class DictStore:
    """A store for threads of one process."""

    def __init__(self):
        self._values = {}
        self._changed = threading.Condition()

    def set(self, key, value):
        with self._changed:
            self._values[key] = bytes(value)
            self._changed.notify_all()

    def get(self, key, timeout):
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, timeout):
                raise _timed_out(key, timeout, "the dictionary")
            return self._values[key]

    def claim(self, key):
        with self._changed:
            first = key not in self._values
            self._values[key] = b""
            return first


class DirectoryStore:
    """A store in a directory that all processes see. One file a key; gradwire-perf uses the same
    layout. The directory is one run's: a second run needs another, or another epoch."""

    def __init__(self, path):
        self._path = os.fspath(path)
        os.makedirs(self._path, exist_ok=True)

    def _file(self, key):
        return os.path.join(self._path, key.replace("/", "."))

    def set(self, key, value):
        # Renamed into place, so that nobody reads half of it; mkstemp() makes it this user's alone,
        # since a rank info has a secret.
        handle, name = tempfile.mkstemp(dir=self._path, prefix=".")
        with os.fdopen(handle, "wb") as file:
            file.write(value)
        os.replace(name, self._file(key))

    def get(self, key, timeout):
        deadline = time.monotonic() + timeout
        while True:
            try:
                with open(self._file(key), "rb") as file:
                    return file.read()
            except FileNotFoundError:
                if time.monotonic() >= deadline:
                    raise _timed_out(key, timeout, self._path) from None
            time.sleep(0.01)

    def claim(self, key):
        try:
            os.close(os.open(self._file(key), os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        return True


class TorchStore:
    """A torch.distributed store (TCPStore, FileStore, ...), such as torchrun's."""

    def __init__(self, store):
        self._store = store

    def set(self, key, value):
        self._store.set(key, bytes(value))

    def get(self, key, timeout):
        import datetime

        try:
            self._store.wait([key], datetime.timedelta(seconds=max(timeout, 0.001)))
        except RuntimeError as error:
            raise _timed_out(key, timeout, "the job's store (%s)" % error) from None
        return self._store.get(key)

    def claim(self, key):
        return self._store.add(key, 1) == 1


def form_group(
    client,
    store,
    rank,
    nranks,
    member=0,
    members=1,
    epoch=0,
    timeout=30.0,
    prefix="gradwire",
    folding_ranks=0,
    transfers_alone=False,
):
    """Forms a group of ``nranks`` daemons with ``members`` processes each, and returns this
    process's Group. Collective. ``epoch`` has to differ from that of every earlier group that used
    this store with this prefix. So many of the last ranks as ``folding_ranks`` says have no
    members: at each, one process that serves (Group.serve(), or gradwire.fold).
    ``transfers_alone``: as for Client.join(). Bound: ``timeout`` for the store and as long for the
    join."""
    if not 0 <= rank < nranks or not 0 <= member < members:
        raise ValueError(
            "rank %d of %d, member %d of %d: both are counted from 0 and must be below their "
            "number" % (rank, nranks, member, members)
        )
    deadline = time.monotonic() + timeout
    base = "%s/%d" % (prefix, epoch)

    def get(key):
        return store.get(key, max(0.0, deadline - time.monotonic()))

    own = client.describe()
    store.set("%s/info/%d/%d" % (base, rank, member), own)
    if rank == 0 and member == 0:
        store.set("%s/id" % base, secrets.token_bytes(8))
    infos = [get("%s/info/%d/0" % (base, other)) for other in range(nranks)]
    if infos[rank] != own:
        raise GradwireError(
            Status.MISMATCH,
            "member %d of rank %d uses another daemon than member 0 of that rank: all members of "
            "a rank must use the same daemon" % (member, rank),
        )
    group_id = int.from_bytes(get("%s/id" % base), "little")
    return client.join(
        group_id,
        epoch,
        rank,
        infos,
        member=member,
        members=members,
        timeout=timeout,
        folding_ranks=folding_ranks,
        transfers_alone=transfers_alone,
    )
