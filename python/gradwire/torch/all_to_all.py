# SPDX-License-Identifier: BSD-3-Clause
"""The whole backend: what the C interface does not have yet is made of what it has. Each such way
is slower than its own collective would be; it is said once, and counted in stats().
"""
import torch
from torch.distributed import PrefixStore
from torch.distributed.distributed_c10d import SHRINK_ABORT

from .._native import GradwireError, Status, lib
from .backend import Collectives, _all_of, _shape
from .datatypes import BYTES
from .pairs import Pairs


class GradwireBackend(Collectives):
    """A process group on gradwire."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._pairs = Pairs(
            self.engine,
            self.store,
            self._rank,
            self.global_ranks,
            min(self.timeout_s, 3600.0),
            self.group_name,
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

    def _close(self):
        if self.engine is not None:
            self._pairs.close()
        super()._close()

    # ---- one process to another

    def _check_peer(self, name, peer):
        if not 0 <= peer < self._size:
            raise ValueError("%s: rank %d of a group of %d" % (name, peer, self._size))
        if peer == self._rank:
            raise ValueError("%s: rank %d is this process itself" % (name, peer))

    def send(self, tensors, peer, tag):
        tensor = self._one(tensors, "send")
        self._check_peer("send", peer)
        work = self._work("send", tensors, None, about="to %d, tag %d" % (peer, tag))
        self._pairs.post(work, self._rank, peer, self._dense(tensor), tag & 0xFFFFFFFF)
        return self._sealed(work)

    def recv(self, tensors, peer, tag):
        tensor = self._one(tensors, "recv")
        self._check_peer("recv", peer)
        work = self._work("recv", tensors, None, about="from %d, tag %d" % (peer, tag))
        target, copy = self._target(tensor)
        work.finish = _all_of([copy])
        self._pairs.post(work, peer, self._rank, target, tag & 0xFFFFFFFF)
        return self._sealed(work)

    def recv_anysource(self, tensors, tag):
        raise GradwireError(
            Status.UNSUPPORTED,
            "recv from any source: gradwire receives from a process that the call names; pass src",
        )

    # ---- one process and all others

    def gather(self, output_lists, inputs, opts):
        tensor = self._one(inputs, "gather")
        root = opts.rootRank
        outputs = self._one(output_lists, "gather") if self._rank == root else []
        if self._rank == root and any(
            t.numel() != tensor.numel() or t.dtype != tensor.dtype for t in outputs
        ):
            raise ValueError("gather: every output must have the input's size and type, %s"
                             % _shape(tensor))
        if self._rank == root and len(outputs) != self._size:
            raise ValueError("gather into a list of %d tensors, but the group has %d processes"
                             % (len(outputs), self._size))
        work = self._work("gather", [tensor, *outputs], opts, about="to %d" % root)
        work.tensors = list(outputs)
        if self._size > 1:
            self.engine.slower_way("gather goes by an all-gather: every process gets all")
        source = self._dense(tensor)
        whole = self._buffer(source, source.numel() * self._size)

        def spread():
            for target, block in zip(outputs, whole.view(self._size, -1)):
                target.detach().copy_(block.view(target.shape))
            self._copied(whole)

        self._add_allgather(work, source, whole)
        work.finish = spread if self._rank == root else None
        return self._sealed(work)

    def scatter(self, outputs, input_lists, opts):
        output = self._one(outputs, "scatter")
        root = opts.rootRank
        inputs = self._one(input_lists, "scatter") if self._rank == root else []
        if self._rank == root and any(
            t.numel() != output.numel() or t.dtype != output.dtype for t in inputs
        ):
            raise ValueError("scatter: every input must have the output's size and type, %s"
                             % _shape(output))
        if self._rank == root and len(inputs) != self._size:
            raise ValueError("scatter of a list of %d tensors, but the group has %d processes"
                             % (len(inputs), self._size))
        work = self._work("scatter", [output, *inputs], opts, about="from %d" % root)
        work.tensors = [output]
        if self._size > 1:
            self.engine.slower_way("scatter goes by a broadcast: every process gets all")
        whole = self._buffer(output, output.numel() * self._size)
        blocks = whole.view(self._size, -1)
        for block, tensor in zip(blocks, inputs):
            block.copy_(tensor.detach().reshape(-1))
        if inputs:
            self._copied(whole)
        self._add_broadcast(work, whole, root)

        def take():
            output.detach().copy_(blocks[self._rank].view(output.shape))

        work.finish = _all_of([take])
        return self._sealed(work)

    # ---- all to all

    def all_to_all_single(self, output, input, output_splits, input_splits, opts):
        row = max(input[0].numel() if input.dim() and input.size(0) else 1, 1)
        sides = []
        for what, tensor, splits in (
            ("output", output, output_splits), ("input", input, input_splits)
        ):
            if not splits:
                if tensor.numel() % self._size:
                    raise ValueError(
                        "all_to_all_single: the %s %s cannot be cut into %d equal parts: pass its "
                        "split sizes" % (what, _shape(tensor), self._size)
                    )
                sides.append([tensor.numel() // self._size] * self._size)
                continue
            if len(splits) != self._size or sum(splits) != (tensor.size(0) if tensor.dim() else 1):
                raise ValueError(
                    "all_to_all_single: the split sizes of the %s %s are %s: there must be %d, and "
                    "their sum its first dimension"
                    % (what, _shape(tensor), list(splits), self._size)
                )
            sides.append([size * row for size in splits])
        work = self._work("all_to_all_single", [input, output], opts)
        work.tensors = [output]
        target, copy = self._target(output)
        given = bool(output_splits or input_splits)
        self._exchange(
            work, self._dense(input), sides[1], list(target.split(sides[0])), given, [copy]
        )
        return self._sealed(work)

    def alltoall_base(self, output, input, output_splits, input_splits, opts):
        return self.all_to_all_single(output, input, output_splits, input_splits, opts)

    def alltoall(self, outputs, inputs, opts):
        if len(outputs) != self._size or len(inputs) != self._size:
            raise ValueError(
                "all_to_all of %d tensors into %d, but the group has %d processes"
                % (len(inputs), len(outputs), self._size)
            )
        work = self._work("all_to_all", [*inputs, *outputs], opts)
        work.tensors = list(outputs)
        whole = torch.cat([self._dense(tensor) for tensor in inputs])
        self._copied(whole)
        targets, copies = zip(*(self._target(tensor) for tensor in outputs))
        self._exchange(
            work, whole, [t.numel() for t in inputs], list(targets), True, list(copies)
        )
        return self._sealed(work)

    def _exchange(self, work, source, sizes, targets, given, last):
        """Each process broadcasts all that it sends, and each takes its part. ``sizes``: elements
        of ``source`` for each process. ``given``: they may differ, so that they have to be told
        first; nothing that is posted later may come between."""
        if self._size > 1:
            self.engine.slower_way(
                "all-to-all goes by a broadcast of each process's whole input to all"
            )
        if not given or self._size == 1:
            table = [sizes] * self._size
            work.finish = self._broadcast_parts(work, source, table, targets, last, False)
            return
        table = torch.empty(self._size * self._size, dtype=torch.int64)
        self._add_allgather(work, torch.tensor(sizes), table, blocks=True)

        def then():
            try:
                rows = table.view(self._size, self._size).tolist()
                return self._broadcast_parts(work, source, rows, targets, last, True)
            finally:
                self.channel.unblock()

        work.finish = then

    def _broadcast_parts(self, work, source, rows, targets, last, first):
        """``rows``: how many elements each process sends to each. Returns what comes after."""
        for rank, row in enumerate(rows):
            if row[self._rank] != targets[rank].numel():
                error = GradwireError(
                    Status.MISMATCH,
                    "rank %d sends %d elements to rank %d, which wants %d"
                    % (self.global_ranks[rank], row[self._rank],
                       self.global_ranks[self._rank], targets[rank].numel()),
                )
                # The others must not wait for this process's part.
                if self.channel.group is not None:
                    self.channel.group.abort(error.text)
                raise error
        ends = []
        for rank, row in enumerate(rows):
            before, mine = sum(row[: self._rank]), row[self._rank]
            if rank == self._rank:
                targets[rank].copy_(source[before : before + mine])
                if self._size > 1:
                    self._add_broadcast(work, source, rank, first)
                continue
            whole = self._buffer(source, sum(row))
            self._post(
                work, lib.gw_broadcast, None, whole, whole.numel() * whole.element_size(), BYTES,
                rank, first=first,
            )
            part = whole[before : before + mine]
            ends.append(lambda part=part, target=targets[rank]: target.copy_(part))
        return _all_of([*ends, *last])
