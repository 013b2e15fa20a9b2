# SPDX-License-Identifier: BSD-3-Clause
"""Send and recv: for each ordered pair of processes a group of these two, formed when they first
use it, in which the sender broadcasts. So a pair has an order of its own, and a recv that waits
holds back no send and no other pair. It is the slower way, until the daemons have sends of their
own.
"""
import threading

from .._native import GradwireError, Status, lib
from .datatypes import BYTES
from .engine import Op
from .formation import form

# Unfinished ops of a pair: the others wait in the channel, so that pairs leave room for each other
# among the 256 ops that a client may have.
_PAIR_OPS = 2


class Pairs:
    """The pairs of one process group, as this process sees them."""

    def __init__(self, engine, store, rank, global_ranks, timeout_s, name):
        self._engine = engine
        self._store = store
        self._rank = rank
        self._global_ranks = global_ranks
        self._timeout_s = timeout_s
        self._name = name
        self._channels = {}
        self._lock = threading.Lock()
        self._closed = False

    def post(self, work, source, target, tensor, tag):
        """Posts one side of a send from ``source`` to ``target``, ranks of the process group."""
        channel = self._channel(source, target)
        address, nbytes = tensor.data_ptr(), tensor.numel() * tensor.element_size()

        def post(group, handle):
            # Who sends is process 0 of the pair's group.
            return lib.gw_broadcast(group, address, address, nbytes, BYTES, 0, tag, handle)

        op = Op(work, channel, post, tensor)
        work.add(op)
        channel.post(op)

    def _channel(self, source, target):
        with self._lock:
            if self._closed:
                raise GradwireError(
                    Status.INVALID_ARGUMENT, "process group %s was destroyed" % self._name
                )
            channel = self._channels.get((source, target))
            if channel is not None:
                return channel
            name = "%s, from %d to %d" % (
                self._name, self._global_ranks[source], self._global_ranks[target]
            )
            channel = self._channels[source, target] = self._engine.channel(name, _PAIR_OPS)
        self._engine.slower_way(
            "send and recv go by broadcasts in a group of the two processes, which is formed when "
            "they first use it; each such pair takes one of the daemon's limits.groups"
        )
        # Forming waits for the other process, which may come to it much later.
        threading.Thread(
            target=self._form, args=(channel, source, target), name="gradwire pair", daemon=True
        ).start()
        return channel

    def _form(self, channel, source, target):
        from torch.distributed import PrefixStore

        try:
            # A connection of its own: torch's main thread may be waiting in the other one.
            store = PrefixStore("gradwire/pair/%d/%d/" % (source, target), self._store.clone())
            place = 0 if self._rank == source else 1
            group, layout = form(
                self._engine.client, store, place, 2, self._timeout_s, channel.name
            )
            channel.open(
                group,
                layout.explain([self._global_ranks[source], self._global_ranks[target]]),
            )
        except Exception as error:  # whoever waits for an op has to hear of it
            if not isinstance(error, GradwireError):
                error = GradwireError(Status.SYSTEM, "%s: %s" % (type(error).__name__, error))
            channel.fail(error)

    def close(self):
        with self._lock:
            self._closed = True
            channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            self._engine.close_channel(channel)
