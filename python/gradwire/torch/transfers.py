# SPDX-License-Identifier: BSD-3-Clause
"""The whole backend: besides the collectives what moves between pairs of processes, for which the
daemons have an order of its own for each pair. These have a channel of their own, so that a recv
that waits holds back no collective; both channels are of one group.
"""
import torch
from torch.distributed import PrefixStore
from torch.distributed.distributed_c10d import SHRINK_ABORT

from .._native import ALL_TO_ALL, GATHER, RECV, SCATTER, SEND, GradwireError, Status
from . import arguments
from .backend import Collectives, _all_of, nbytes_of, put
from .channel import RECVS, SENDS

# The queues of the channel that a transfer goes through.
_WAYS = {SEND: (SENDS,), RECV: (RECVS,)}


class GradwireBackend(Collectives):
    """A process group on gradwire."""

    def _make_channels(self):
        super()._make_channels()
        self._transfers = self.engine.channel(
            "%s, transfers" % self.group_name, self._abort_hooks, True
        )

    def split(self, store, ranks, opts):
        """The group of ``ranks`` of this one, or None if this process is not among them."""
        if self._rank not in ranks:
            return None
        return GradwireBackend(
            store,
            ranks.index(self._rank),
            len(ranks),
            self.timeout_s if opts is None else opts._timeout.total_seconds(),
            (opts.group_name if opts is not None else "") or self.group_name + "/split",
            [self.global_ranks[rank] for rank in ranks],
        )

    def shrink(self, excluded, flags, opts):
        """The group of the ranks that are not ``excluded``, which may be dead. Only these call it,
        each with the same list. Torch destroys this group afterwards; ``flags``: with SHRINK_ABORT
        it is ended first, so that nobody goes on to wait for what is unfinished."""
        ranks = [rank for rank in range(self._size) if rank not in excluded]
        if flags & SHRINK_ABORT:
            self.end_everywhere()
        # The old group's keys stay in the store; the new one's have who is left in their names.
        left = ",".join(str(self.global_ranks[rank]) for rank in ranks)
        timeout_s = self.timeout_s if opts is None else opts._timeout.total_seconds()
        return GradwireBackend(
            PrefixStore("shrunk/%s/" % left, self.store),
            ranks.index(self._rank),
            len(ranks),
            timeout_s,
            "%s without %s" % (
                self.group_name, ", ".join(str(self.global_ranks[rank]) for rank in excluded)
            ),
            [self.global_ranks[rank] for rank in ranks],
        )

    def _channels(self):
        return [self.channel, self._transfers]

    # ---- how a transfer is posted

    def _move(self, work, collective, source, target, count, peer=0, tag=0, counts=(None, None)):
        """Posts one transfer. ``count``: bytes, of a block if there are blocks."""
        self._post(work, collective, source, target, count, root=peer, channel=self._transfers,
                   ways=_WAYS.get(collective, (SENDS, RECVS)), tag=tag & 0xFFFFFFFF, counts=counts)

    # ---- one process to another

    def send(self, tensors, peer, tag):
        call = self._call("send")
        tensor = arguments.one(call, tensors)
        arguments.peer(call, peer, tag)
        work = self._work(call, tensors, None, about="to %d, tag %d" % (peer, tag),
                          transfers=True)
        source = self._dense(tensor, True)
        self._move(work, SEND, source, None, nbytes_of(source), peer, tag)
        return self._sealed(work)

    def recv(self, tensors, peer, tag):
        call = self._call("recv")
        tensor = arguments.one(call, tensors)
        arguments.peer(call, peer, tag)
        work = self._work(call, tensors, None, about="from %d, tag %d" % (peer, tag),
                          transfers=True)
        work.source = peer
        target, copy = self._target(tensor, True)
        work.finish = _all_of([copy])
        self._move(work, RECV, None, target, nbytes_of(target), peer, tag)
        return self._sealed(work)

    def recv_anysource(self, tensors, tag):
        raise GradwireError(
            Status.UNSUPPORTED,
            "recv from any source: gradwire receives from a process that the call names; pass src",
        )

    # ---- one process and all others

    def gather(self, output_lists, inputs, opts):
        call, root = self._call("gather"), opts.rootRank
        tensor = arguments.one(call, inputs)
        arguments.root(call, root)
        outputs = []
        if self._rank != root:
            arguments.none(call, output_lists, "outputs", root)
        else:
            outputs = arguments.one(call, output_lists, "one list of outputs")
            arguments.blocks(call, outputs, "outputs")
            arguments.one_type(call, [tensor, *outputs])
            arguments.same_size(call, outputs, "output", tensor, "the input")
        work = self._work(call, [tensor, *outputs], opts, about="to %d" % root)
        work.tensors = list(outputs)
        source = self._dense(tensor)
        if self._rank != root:
            self._move(work, GATHER, source, None, nbytes_of(source), root)
            return self._sealed(work)
        if work.gpu is not None:
            self._about_to_copy([], outputs)
        whole = self._buffer(source, source.numel() * self._size)

        def spread():
            for target, block in zip(outputs, whole.view(self._size, -1)):
                put(target, block)
            self._copied_out(whole)

        self._move(work, GATHER, source, whole, nbytes_of(source), root)
        work.finish = _all_of([spread])
        return self._sealed(work)

    def scatter(self, outputs, input_lists, opts):
        call, root = self._call("scatter"), opts.rootRank
        output = arguments.one(call, outputs)
        arguments.root(call, root)
        inputs = []
        if self._rank != root:
            arguments.none(call, input_lists, "inputs", root)
        else:
            inputs = arguments.one(call, input_lists, "one list of inputs")
            arguments.blocks(call, inputs, "inputs")
            arguments.one_type(call, [output, *inputs])
            arguments.same_size(call, inputs, "input", output, "the output")
        work = self._work(call, [output, *inputs], opts, about="from %d" % root)
        work.tensors = [output]
        whole = None
        if self._rank == root:
            if work.gpu is not None:
                self._about_to_copy(inputs)
            whole = self._joined(inputs, output)
        target, copy = self._target(output)
        self._move(work, SCATTER, whole, target, nbytes_of(target), root)
        work.finish = _all_of([copy])
        return self._sealed(work)

    # ---- all to all

    def all_to_all_single(self, output, input, output_splits, input_splits, opts):
        call = self._call("all_to_all_single")
        arguments.one_type(call, [input, output])
        received = arguments.splits(call, "output", output, output_splits)
        sent = arguments.splits(call, "input", input, input_splits)
        arguments.own_block(call, sent, received)
        work = self._work(call, [input, output], opts)
        work.tensors = [output]
        target, copy = self._target(output)
        self._exchange(work, self._dense(input), target, sent, received,
                       bool(output_splits or input_splits))
        work.finish = _all_of([copy])
        return self._sealed(work)

    def alltoall_base(self, output, input, output_splits, input_splits, opts):
        return self.all_to_all_single(output, input, output_splits, input_splits, opts)

    def alltoall(self, outputs, inputs, opts):
        call = self._call("all_to_all")
        arguments.blocks(call, outputs, "outputs")
        arguments.blocks(call, inputs, "inputs")
        arguments.one_type(call, [*inputs, *outputs])
        arguments.own_size(call, outputs, "output", inputs[self._rank], "its own input")
        work = self._work(call, [*inputs, *outputs], opts)
        work.tensors = list(outputs)
        self._about_to_copy(inputs, outputs)
        source = torch.cat([tensor.detach().reshape(-1) for tensor in inputs])
        self._copied(source)
        sizes = [tensor.numel() for tensor in outputs]
        whole = self._buffer(source, sum(sizes))

        def spread():
            for target, block in zip(outputs, whole.split(sizes)):
                put(target, block)
            self._copied_out(whole)

        self._exchange(work, source, whole, [t.numel() for t in inputs], sizes, True)
        work.finish = _all_of([spread])
        return self._sealed(work)

    def _exchange(self, work, source, target, sent, received, given):
        """``sent``, ``received``: elements for each process; equal ones unless they are
        ``given``."""
        width = source.element_size()
        if not given:
            return self._move(work, ALL_TO_ALL, source, target, sent[self._rank] * width)
        self._move(
            work, ALL_TO_ALL, source, target, 0,
            counts=([n * width for n in sent], [n * width for n in received]),
        )
