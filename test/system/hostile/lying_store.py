#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""lying_store.py SOCKET...: clients of five daemons get tables that are not what the
daemons said. 0 and 1 have the cluster's key and are joined, 2 has no key, 3 another one, 4 wants
encrypt at least. Each rank has to be told why no group forms. --keep FILE: daemon 1's entry is left
there. --ended FILE: it is that of a daemon that has ended."""

import argparse
import re
import threading

import numpy as np

import gradwire
from crc32c import crc32c

GROUP_ID, KEYS_AT = 0x57012E << 32, 280
PATTERN = 0xA5
JOB_KEYS = bytes(range(7, 39)), bytes(range(8, 40))
REFUSED_S = 2  # whoever is not told by then is told so: nobody comes
FORMS_S = 60
# The other rank has refused, so nobody comes.
WAITS = "rank"


def require(condition, what):
    if not condition:
        raise SystemExit(f"FAILED: {what}")


def with_checksum(entry):
    entry = bytearray(entry)
    entry[36:40] = bytes(4)
    entry[36:40] = crc32c(bytes(entry)).to_bytes(4, "little")
    return bytes(entry)


def changed(entry, at, bit=1):
    entry = bytearray(entry)
    entry[at] ^= bit
    return with_checksum(entry)


def id_of(entry):
    return entry[320:328].hex()


class Store:
    """Hands tables to clients. Client i is one of daemon i."""

    def __init__(self, sockets, first):
        self.clients = [gradwire.Client(socket) for socket in sockets]
        self.memory = [client.allocate(65536).array("uint8") for client in self.clients]
        for memory in self.memory:
            memory[:] = PATTERN
        self.groups = first

    def join(self, tables, daemons, wants, patience_s):
        """@param tables the entries that each rank is given. @return what each rank is told: an
        error, or its group."""
        self.groups += 1
        told = [None] * len(daemons)

        def join(rank):
            try:
                told[rank] = self.clients[daemons[rank]].join(
                    GROUP_ID + self.groups, 1, rank, tables[rank], timeout=patience_s,
                    **wants[rank])
            except gradwire.GradwireError as error:
                told[rank] = str(error)

        threads = [threading.Thread(target=join, args=(rank,)) for rank in range(len(daemons))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return told

    def refused(self, what, tables, texts, daemons=(0, 1), wants=None, security="encrypt",
                patience_s=REFUSED_S):
        """@param tables one for all, or one for each rank; texts: a regular expression for what
        each rank is told."""
        if isinstance(tables[0], bytes):
            tables = [tables] * len(daemons)
        told = self.join(tables, daemons, wants or [{"security": security}] * len(daemons),
                         patience_s)
        for rank, (error, text) in enumerate(zip(told, texts)):
            print(f"{what}: rank {rank}: {error}", flush=True)
            require(isinstance(error, str), f"{what}: rank {rank} takes it")
            require(re.search(text, error), f"{what}: rank {rank}: {text} in: {error}")
        for memory in self.memory:
            require((memory == PATTERN).all(), f"{what}: a client's memory is as it was")

    def forms(self, what, entries, daemons=(0, 1), wants=None, security="encrypt"):
        told = self.join([entries] * 2, daemons, wants or [{"security": security}] * 2, FORMS_S)
        require(not any(isinstance(one, str) for one in told), f"{what}: {told}")
        values = [np.full(1000, rank + 1, "f4") for rank in range(2)]
        works = [group.all_reduce(value) for group, value in zip(told, values)]
        for work in works:
            work.wait(60)
        require(all((value == 3).all() for value in values), f"{what}: a sum")
        for group in told:
            group.close()

    def entry(self, daemon, security="encrypt", **more):
        return self.clients[daemon].describe(security=security, **more)


def changes(store):
    """Fields that the store may want to be others. It has no key, so no MAC."""
    one, other = store.entry(0), store.entry(1)
    store.forms("the truth", [one, other])
    key = id_of(one)
    for what, at, bit in (("mode", 282, 2), ("user", 284, 1), ("public key", 300, 1),
                          ("address", 43, 4), ("incarnation", 8, 1), ("payload", 377, 1),
                          ("MAC", 328, 1), ("count of lanes", 26, 2), ("port", 24, 1)):
        for rank in range(2):
            entries, texts = [one, other], [f"the entry of rank {rank} does not fit key {key}"] * 2
            entries[rank] = changed(entries[rank], at, bit)
            # Whose it is sees that it is another one.
            texts[rank] = "not in the table" if what == "incarnation" else (
                f"the entry of rank {rank} (does not fit|comes from this daemon but was changed)")
            store.refused(f"a changed {what} of rank {rank}", entries, texts)
    stripped = with_checksum(other[:KEYS_AT] + bytes(512 - KEYS_AT))
    store.refused("no fields of keys", [one, stripped],
                  ("rank 1 has no key, and rank 0 wants encrypt", "entry of rank 1"))
    store.refused("another id of the key", [one, changed(other, 320)],
                  ("ranks 0 and 1 have no key in common", "entry of rank 1"))


def old_entries(store):
    """Entries that daemons did make, for other joins."""
    one, other = store.entry(0), store.entry(1)
    for less in "off", "authenticate":
        store.refused(f"an entry of rank 1 that wants {less}", [one, store.entry(1, less)],
                      (WAITS, f"rank 1 says that the job wants {less}.* asks for encrypt"))
    store.refused("both are of joins that wanted off",
                  [store.entry(0, "off"), store.entry(1, "off")],
                  [f"rank {rank} says that the job wants off" for rank in range(2)])
    jobs = [[store.entry(daemon, job_key=key) for daemon in range(2)] for key in JOB_KEYS]
    wants = [{"security": "encrypt", "job_key": key} for key in JOB_KEYS]
    store.forms("a job's key", jobs[0], wants=[wants[0]] * 2)
    store.refused("two tables mixed", [jobs[0][0], jobs[1][1]], ("job", "job"), wants=wants)
    store.refused("two tables mixed, and both have one key", [jobs[0][0], jobs[1][1]],
                  ("job", "job"), wants=[wants[0]] * 2)
    store.refused("an entry without the job's key", [jobs[0][0], other], ("job", "job"),
                  wants=[wants[0]] * 2)
    store.refused("another table for each",
                  [[one, other], [store.entry(0, "authenticate"), other]],
                  ("table", "table"))
    # Rank 0 wants off, and is shown an old entry of rank 1, which wants encrypt now. Each has to
    # hear the other's greeting meanwhile.
    off = [store.entry(daemon, "off") for daemon in range(2)]
    store.refused("another mode for each", [off, [off[0], other]],
                  [f"rank {rank} .*sends packets that are not sealed" for rank in (1, 0)],
                  wants=[{"security": "off"}, {"security": "encrypt"}], patience_s=10)
    store.refused("one daemon twice", [one, one], ["ranks 0 and 1 are the same daemon"] * 2,
                  daemons=(0, 0))


def others(store):
    """Daemons without the key, or that want more."""
    one = store.entry(0)
    for rank, daemon in ((1, 2), (0, 2)):
        entries = [one, one]
        entries[rank] = store.entry(2, None)
        daemons = [0, 0]
        daemons[rank] = daemon
        wants = [{"security": "encrypt"}] * 2
        wants[rank] = {"security": None}
        text = f"rank {rank} has no key, and rank {1 - rank} wants encrypt"
        store.refused("a rank without a key", entries, (text, text), daemons, wants)
    strange = store.entry(3)
    ids = f"{id_of(one)}.*{id_of(strange)}|{id_of(strange)}.*{id_of(one)}"
    store.refused("a rank with another key", [one, strange], (ids, ids), (0, 3))
    for text, call in (("this daemon has no key", lambda: store.entry(2)),
                       ("this daemon has no cluster's key",
                        lambda: store.entry(2, None, job_key=JOB_KEYS[0]))):
        try:
            call()
            require(False, f"{text}: an entry is made")
        except gradwire.GradwireError as error:
            require(text in str(error), f"{text} in: {error}")
    for less in "off", "authenticate":
        store.refused("less than the daemon's minimum", [one, store.entry(4, less)],
                      (WAITS, f"the job wants {less}, and security.minimum is encrypt"), (0, 4),
                      [{"security": "encrypt"}, {"security": less}])
    entries = [store.entry(daemon, "off", job_key=None) for daemon in range(2)]
    store.refused("a job's key in a group whose mode is off", entries, ("job", "job"),
                  wants=[{"security": "off", "job_key": JOB_KEYS[0]}] * 2)
    store.forms("off", entries, security="off")


def ended(store, old):
    """The entry of a daemon that is no more: a MAC that fits, and nobody who has the key of it."""
    one, other = store.entry(0), store.entry(1)
    store.refused("an entry of a daemon that ended", [one, old], ("rank 1", "rank 1"))
    store.forms("its own", [one, other])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":", 1)[0])
    parser.add_argument("sockets", nargs=5)
    parser.add_argument("--keep")
    parser.add_argument("--ended")
    arguments = parser.parse_args()
    # A daemon refuses an epoch that it has seen.
    store = Store(arguments.sockets, 1000 if arguments.ended else 0)
    if arguments.ended:
        with open(arguments.ended, "rb") as file:
            ended(store, file.read())
        return 0
    for part in (changes, old_entries, others):
        part(store)
    if arguments.keep:
        with open(arguments.keep, "wb") as file:
            file.write(store.entry(1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
