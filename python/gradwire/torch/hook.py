# SPDX-License-Identifier: BSD-3-Clause
"""A communication hook for PyTorch's DistributedDataParallel.

    from gradwire.torch import GradwireState, allreduce_hook

    torch.distributed.init_process_group("gloo")     # for DDP's own initial broadcast
    model = DistributedDataParallel(model)
    state = GradwireState()
    model.register_comm_hook(state, allreduce_hook)

Every gradient bucket is copied into memory that the daemon shares, averaged over all processes by
gradwire, and copied back: two copies per bucket, which ``state.stats()`` counts. A bucket on a CUDA
device is handed over before it is computed. If the daemon's gradient memory is on a GPU
(gpu.client_memory) the bucket is copied in on the stream that computes it, else by the library, on
streams beside that one. What uses the mean afterwards waits for it on its own stream. The average
is taken by redop ``avg``: one division of the whole sum, in the accumulator's precision before its
last rounding. For a power of two of processes these are the bits of DDP's own mean (which divides
each gradient first), as far as the order of summation and the range allow; for others it rounds
once where DDP rounds every gradient.

Each process of a host is a member of its rank, whichever of the host's GPUs it has. An op that
fails or takes longer than ``timeout`` makes the backward pass raise GradwireError's text, on every
process of the group. Those that are left can go on as a smaller group: see GradwireState.shrink().
"""
import collections
import functools
import os
import queue
import threading
import time

import torch
import torch.distributed as dist

from .. import rendezvous, survivors
from .._cuda import cuda
from .._native import GradwireError, Status
from ..client import Client
from ..digest import Digests
from .callbacks import Callbacks
from .capture import check_not_captured
from .feedback import Feedback, Turn

__all__ = ["GradwireState", "Shrunk", "allreduce_hook"]

# What is left after GradwireState.shrink(): this process's number and how many there are now; the
# numbers that those had before, in their order now; the lowest progress that one of them reported;
# the highest op that each had completed; and a name that no other group of this store has.
Shrunk = collections.namedtuple("Shrunk", "process world processes progress completed_ops name")

# Times that are kept for median and p99: the last so many.
_TIMES_KEPT = 100_000
# After a group is aborted its ops end at once; this bounds the wait for that.
_ABORT_WAIT_S = 5.0


def _from_environment(name, otherwise):
    text = os.environ.get(name)
    if text is None or text == "":
        return otherwise
    try:
        return int(text)
    except ValueError:
        raise ValueError("environment variable %s is %r, not a number" % (name, text)) from None


def _place(process, world, rank, nranks, member, members):
    """(rank, nranks, member, members) of one of ``world`` processes; what is None is derived."""
    if members is None:
        members = world // nranks if nranks else None
    if members is None:
        members = _from_environment("GRADWIRE_MEMBERS", _from_environment("LOCAL_WORLD_SIZE", 1))
    if nranks is None:
        nranks = world // members if members > 0 else 0
    if nranks < 1 or nranks * members != world:
        raise ValueError(
            "%d processes are not %d ranks of %d members: say how many processes use each daemon, "
            "by members= or GRADWIRE_MEMBERS" % (world, nranks, members)
        )
    rank = process // members if rank is None else rank
    member = process % members if member is None else member
    return rank, nranks, member, members


class _Bucket:
    """Shared memory of one bucket of DDP's."""

    def __init__(self, memory):
        self.memory = memory
        self.busy = False
        self.copied_out = None  # on the GPU: the end of the copy that took the last sum away


class GradwireState:
    """What the hook needs: a client of this host's daemon, and the group of all processes.

    Constructing it is collective. Processes are laid out host by host, as torchrun does: process p
    is member p % members of rank p // members, where members, the number of processes that use one
    daemon, is the argument, else $GRADWIRE_MEMBERS, else torchrun's $LOCAL_WORLD_SIZE, else 1.
    ``rank`` and ``member`` override that.

    socket:   the daemon's; None is $GRADWIRE_SOCKET, else /run/gradwire/gradwired.sock
    folding_ranks: so many hosts beside those of the job only sum: at each runs python -m
              gradwire.fold --store FOLDING_STORE --prefix gradwire-NAME. None is
              $GRADWIRE_FOLDING_RANKS, else 0
    folding_store: a directory that they and all processes see, a new one for each run; None is
              $GRADWIRE_FOLDING_STORE
    epoch:    of the group; None is torchrun's restart count. It has to differ from that of every
              earlier group with this ``name`` in the same store
    store:    a torch.distributed store; None is the job's own
    timeout:  bound of the formation, and of each all-reduce, in seconds
    client:   an open Client to use instead of opening one
    format:   "bf16" or "int8": gradients of fp32 (int8: of bf16, too) travel in a half or a quarter
              of their bytes, and the mean is rounded (doc/pytorch.md, "Fewer bytes on the wire").
              All processes say the same. What cannot travel so goes as it is, with a warning
    error_feedback: what that loses of this rank's gradients is added to those of the next step. It
              takes 8 bytes of gradient memory for each gradient, at member 0 of each rank
    digest:   compare a digest of each sum over all processes, and abort the group, naming the odd
              one out, where they differ; None is $GRADWIRE_DIGEST, else off (gradwire.digest)
    """

    def __init__(
        self,
        process_group=None,
        *,
        socket=None,
        rank=None,
        nranks=None,
        member=None,
        members=None,
        epoch=None,
        store=None,
        timeout=60.0,
        name="ddp",
        client=None,
        digest=None,
        format=None,
        error_feedback=True,
        folding_ranks=None,
        folding_store=None,
    ):
        rank, nranks, member, members = _place(
            dist.get_rank(process_group),
            dist.get_world_size(process_group),
            rank,
            nranks,
            member,
            members,
        )
        if epoch is None:
            epoch = _from_environment("TORCHELASTIC_RESTART_COUNT", 0)
        if folding_ranks is None:
            folding_ranks = _from_environment("GRADWIRE_FOLDING_RANKS", 0)
        folding_store = folding_store or os.environ.get("GRADWIRE_FOLDING_STORE")
        if folding_ranks and not folding_store:
            raise ValueError(
                "%d hosts are to sum for the job, and nothing says in which directory they meet "
                "it: folding_store= or GRADWIRE_FOLDING_STORE" % folding_ranks
            )
        if store is None:
            store = dist.distributed_c10d._get_default_store()
        self.timeout = timeout
        self._lock = threading.Lock()
        self._buckets = {}
        self._times = collections.deque(maxlen=_TIMES_KEPT)
        self._ops = self._bytes = self._copies = self._copied_bytes = self._failed = 0
        self._own_client = client is None
        self.client = Client(socket) if client is None else client
        self._feedback = Feedback(self.client, format, error_feedback)
        self._store = rendezvous.TorchStore(store)
        self._epoch = epoch
        self._name = "gradwire-" + name
        if digest is None:
            digest = _from_environment("GRADWIRE_DIGEST", 0) != 0
        self._compares = bool(digest)
        self._digests = None
        self._shrinks = 0
        self._streams = {}  # by device: where sums are copied back
        self._thread = None
        self._queue = queue.SimpleQueue()
        self._callbacks = Callbacks()
        self.group = None
        try:
            self._join(rank, nranks, member, members, self._name,
                       (folding_ranks, folding_store) if folding_ranks else None)
        except BaseException:
            self.close()
            raise

    def _join(self, rank, nranks, member, members, prefix, folding=None):
        """``folding``: how many hosts only sum, and the directory in which they meet the others."""
        place = dict(epoch=self._epoch, timeout=self.timeout)
        if folding is None:
            self.group = rendezvous.form_group(
                self.client, self._store, rank, nranks, member, members, prefix=prefix, **place
            )
        else:
            self.group = rendezvous.form_group(
                self.client, rendezvous.DirectoryStore(folding[1]), rank, nranks + folding[0],
                member, members, folding_ranks=folding[0], prefix=prefix, **place
            )
        try:
            if self._compares:
                self._digests = Digests(self.client, self.group, self._store, self._epoch, prefix)
            self._feedback.join(self.group)
        except BaseException as error:
            # No thread would end this group's ops: without the group nobody posts any, and the
            # other processes hear at once why it has ended.
            try:
                self.group.abort("member %d of rank %d could not begin: %s" % (
                    self.group.member, self.group.rank, error))
            except GradwireError:
                pass  # there is no daemon any more, or no group
            self._end_group()
            raise
        self._completed_op = 0
        self._abort = None
        self._thread = threading.Thread(target=self._complete, name="gradwire", daemon=True)
        self._thread.start()

    def _claim(self, index, nbytes):
        """Shared memory for a bucket; kept from step to step."""
        with self._lock:
            bucket = self._buckets.get(index)
            if bucket is not None and bucket.busy:
                raise GradwireError(
                    Status.BUSY, "bucket %d was passed to the hook again before its last sum was "
                                 "there: wait for the future that the hook returned" % index
                )
            if bucket is not None and bucket.memory.nbytes < nbytes:
                del self._buckets[index]
                bucket = None  # given back, before more is asked for
            if bucket is None:
                bucket = self._buckets[index] = _Bucket(self._allocate(nbytes))
            bucket.busy = True
            return bucket

    def _allocate(self, nbytes):
        """Gradient memory, if need be that of residuals."""
        while True:
            try:
                return self.client.allocate(nbytes)
            except GradwireError as error:
                if error.code != Status.RESOURCE_EXHAUSTED or not self._feedback.give_up():
                    raise

    def _reduce(self, index, tensor, parameters=None):
        """Copies ``tensor`` in and posts it; the future gets the tensor when the mean is in it.
        ``parameters``: whose gradients it has."""
        self._live_group()
        if tensor.device.type not in ("cpu", "cuda"):
            raise GradwireError(
                Status.UNSUPPORTED,
                "the gradients are on %s, but this hook reduces CPU and CUDA tensors only"
                % tensor.device,
            )
        if cuda.holds(tensor):
            check_not_captured(
                cuda.device_of(tensor), lambda: "the all-reduce of bucket %d" % index,
                "run the backward pass outside the capture",
            )
        nbytes = tensor.numel() * tensor.element_size()
        future = (
            cuda.future(cuda.device_of(tensor)) if cuda.holds(tensor) else torch.futures.Future()
        )
        # A future of torch's has no way to be given an error, except by a callback that raises.
        result = future.then(lambda finished: _value_or_raise(finished.value()))
        bucket, turn = None, Turn()
        try:
            if not self._is_librarys(tensor):
                bucket = self._claim(index, max(nbytes, 1))
            start = time.monotonic()
            shared, stream = tensor, None
            wire = self._feedback.wire_of(tensor)
            if wire is not None:
                turn = self._feedback.begin(index, tensor, parameters)
            if bucket is not None and nbytes:
                shared, stream = self._feed(bucket, tensor)
            posted = time.monotonic()
            work = self._post(shared, stream, wire, turn)
        except BaseException as error:
            turn.end(False)
            if bucket is not None:
                bucket.busy = False
            self._end_for_all(index, error)
            raise
        if bucket is not None:
            with self._lock:
                self._copies += 1
                self._copied_bytes += nbytes
        if wire is not None:
            self._feedback.took(tensor)
        self._queue.put((work, turn, bucket, shared, tensor, future, start, posted))
        return result

    def _post(self, values, stream, wire, turn):
        """Posts the op. What the library copies takes gradient memory, too, if need be that of
        residuals."""
        group = self._live_group()
        while True:
            try:
                return group.all_reduce(
                    values, op="avg", stream=stream, wire=wire, residuals=turn.arrays
                )
            except GradwireError as error:
                if error.code != Status.RESOURCE_EXHAUSTED or not self._feedback.give_up(turn):
                    raise

    def _end_for_all(self, index, error):
        """This process is an op behind the others from now on: they shall not wait for it, nor take
        its next op for this one."""
        group = self.group
        if group is None:
            return
        text = "member %d of rank %d could not post the all-reduce of bucket %d: %s" % (
            group.member, group.rank, index, error)
        try:
            group.abort(text)
            group.check()
        except GradwireError as ended:
            if ended.code != Status.ABORTED:
                return  # there is no daemon any more, or no group
            text = ended.text  # it may have ended before, for another reason
        with self._lock:
            # shrink() may come before the daemon's word.
            self._abort = self._abort or GradwireError(Status.ABORTED, text)

    def _is_librarys(self, tensor):
        """Whether the library makes the copies: of a GPU's tensor, where gradient memory is the
        host's. Digests are of sums in gradient memory."""
        return (
            cuda.holds(tensor) and self._digests is None and self.client.memory_device() is None
        )

    def _feed(self, bucket, tensor):
        """Copies a gradient to shared memory. @return that, and the stream of the copy; None where
        it is over."""
        memory = bucket.memory
        shared = memory.tensor(tensor.dtype, tensor.numel())
        if memory.device is None or not cuda.holds(tensor):
            shared.copy_(tensor.view(-1))  # waits for the stream where one of them is on a GPU
            return shared, None
        stream = cuda.current_stream(memory.device)
        if bucket.copied_out is not None:
            stream.wait_event(bucket.copied_out)
        shared.copy_(tensor.view(-1), non_blocking=True)
        return shared, stream

    def _side_stream(self, tensor):
        device = cuda.device_of(tensor)
        if device not in self._streams:
            cuda.enter(device)
            self._streams[device] = cuda.new_stream(device)
        return self._streams[device]

    def _fetch(self, bucket, shared, tensor):
        """Copies a sum back. @return the stream of the copy; None where it is over."""
        if not cuda.holds(tensor):
            tensor.view(-1).copy_(shared)
            return None
        stream = self._side_stream(tensor)
        with cuda.using(stream):
            tensor.view(-1).copy_(shared, non_blocking=True)
        cuda.keep(tensor, stream)
        bucket.copied_out = stream.record_event()
        return stream

    def _complete(self):
        """The thread that waits, in the order of posting, which is the order of finishing."""
        while True:
            item = self._queue.get()
            if item is None:
                return
            work, turn, bucket, shared, tensor, future, start, posted = item
            del item
            outcome = tensor
            stream = None
            try:
                self._wait(work)
                done = time.monotonic()
                if self._digests is not None:
                    self._digests.compare(shared, work.op_seq, self.timeout)
                if shared is not tensor:
                    stream = self._fetch(bucket, shared, tensor)
                turn.end(True)
                nbytes = tensor.numel() * tensor.element_size()
                with self._lock:
                    self._completed_op = max(self._completed_op, work.op_seq)
                    self._times.append(done - posted)
                    self._ops += 1
                    self._bytes += nbytes
                    if bucket is not None:
                        self._copies += 1
                        self._copied_bytes += nbytes
            except Exception as error:  # whatever it is, the backward pass has to hear of it
                outcome = error
                turn.end(False)
                with self._lock:
                    self._failed += 1
                    if getattr(error, "code", None) == Status.ABORTED:
                        self._abort = error
            del work, turn, shared, tensor
            if bucket is not None:
                bucket.busy = False
            del bucket  # whose memory the next step may give back
            # A callback of its may wait for the next bucket's, which this thread ends.
            self._callbacks.give(functools.partial(_give, future, outcome, stream))
            del future, outcome

    def _wait(self, work):
        try:
            work.wait(self.timeout)
        except GradwireError as error:
            if error.code != Status.TIMED_OUT:
                raise
            # The op would go on and write into memory that the next step uses; and the other
            # processes would wait for this one. So it ends everywhere.
            try:
                self.group.abort("an all-reduce took longer than %.1f s" % self.timeout)
                work.wait(_ABORT_WAIT_S)
            except GradwireError:
                pass
            raise error from None

    def stats(self):
        """Counters and times since the start: ``ops`` and ``bytes`` reduced, ``failed``; the hook's
        own ``copies`` and ``copied_bytes`` (two each op: into shared memory and back); the copies
        that the library made (``library_copies``: the same two where the hook makes none);
        ``median_s``, ``p99_s`` and
        ``max_s`` from posting an all-reduce to its end, None before the first. Of the format:
        ``format``, ``format_ops``, ``format_bytes``, ``wire_bytes``, ``wire_bytes_without``,
        ``residual_resets``, ``fell_back`` and ``encoding_error``, as feedback.py and wire.py in
        this folder say."""
        group = self._live_group()
        library = self.client.counters()
        with self._lock:
            times = sorted(self._times)
            stats = {
                "rank": group.rank,
                "nranks": group.nranks,
                "member": group.member,
                "members": group.members,
                "ops": self._ops,
                "failed": self._failed,
                "bytes": self._bytes,
                "copies": self._copies,
                "copied_bytes": self._copied_bytes,
                "library_copies": library["copies"],
                "library_copied_bytes": library["copied_bytes"],
            }

        def at(share):
            return times[min(len(times) - 1, int(share * len(times)))] if times else None

        stats.update(self._feedback.stats())
        stats.update(median_s=at(0.5), p99_s=at(0.99), max_s=times[-1] if times else None)
        return stats

    def shrink(self, progress=0, patience=30.0):
        """After the group was aborted: forms a smaller one of the processes that are left, and
        returns a Shrunk. Collective among those; this state then belongs to the new group.

        progress: how far this process is, a number such as its step. Processes may differ by the
                  step in which the group was aborted: some got its last sum, others an error. All
                  get the lowest, and go on from there, from parameters that they kept
        patience: how long the others are waited for, in seconds; those of a rank that the abort
                  named as lost are not. It has to be longer than a step's computation

        Hosts that only sum are not part of the smaller group. If one of them was lost, all
        processes go on. DDP and its process group have to be made anew, since the one counts on the
        lost process and the other is in the middle of a backward pass:

            store = dist.distributed_c10d._get_default_store()
            try:
                loss.backward()
            except RuntimeError:
                left = state.shrink(progress=step)
                dist.destroy_process_group()
                dist.init_process_group("gloo", store=dist.PrefixStore(left.name, store),
                                        rank=left.process, world_size=left.world)
                model = DistributedDataParallel(module)
                model.register_comm_hook(state, allreduce_hook)
                step = left.progress          # and the parameters of that step

        The store must outlive the lost process: torchrun's does, and a FileStore; one that a
        training process serves goes with that process. Raises what the group was aborted with
        where this process cannot go on, and INVALID_ARGUMENT where the group was not aborted.
        """
        old = self._live_group()
        with self._lock:
            abort = self._abort
        if abort is None:
            try:
                old.check()
            except GradwireError as error:
                if error.code != Status.ABORTED:
                    raise
                abort = error
        if abort is None:
            raise GradwireError(
                Status.INVALID_ARGUMENT, "the group was not aborted: there is nothing to shrink"
            )
        self._end_group()
        self._shrinks += 1
        name = "%s/%d/shrink%d" % (self._name, self._epoch, self._shrinks)
        try:
            left = survivors.agree(
                self._store,
                name,
                old.rank,
                old.processes // old.members,  # those that have members
                old.member,
                old.members,
                {"progress": progress, "completed_op": self._completed_op},
                lost=survivors.lost_rank(abort.text),
                patience=patience,
                timeout=self.timeout,
            )
        except GradwireError as error:
            if error.code != Status.NOT_FOUND:
                raise
            raise GradwireError(abort.code, abort.text) from error
        rank = left.ranks.index(old.rank)
        self._join(rank, len(left.ranks), old.member, old.members, name)
        places = sorted(left.reports)
        return Shrunk(
            process=rank * old.members + old.member,
            world=len(places),
            processes=[r * old.members + m for r, m in places],
            progress=min(said["progress"] for said in left.reports.values()),
            completed_ops=[left.reports[place]["completed_op"] for place in places],
            name=name,
        )

    def _end_group(self):
        """Ends the thread, which finishes what was posted, and leaves the group."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(self.timeout + 2 * _ABORT_WAIT_S)
            self._thread = None
        group, self.group = self.group, None
        if group is None:
            return
        if self._digests is not None:
            self._digests.close()
            self._digests = None
        try:
            group.leave()
        except GradwireError as error:
            # Of a group or daemon that is gone there is nothing to leave.
            if error.code not in (Status.ABORTED, Status.UNAVAILABLE, Status.NOT_FOUND):
                raise
        finally:
            group.close()

    def _live_group(self):
        if self.group is None:
            raise GradwireError(
                Status.INVALID_ARGUMENT,
                "this GradwireState has no group any more: it was closed, or shrink() failed",
            )
        return self.group

    def close(self):
        """Ends the thread, leaves the group, closes the client that it opened."""
        if self.client is None:
            return
        try:
            self._end_group()
        finally:
            self._callbacks.stop()
            self._buckets.clear()
            self._feedback.close()
            if self._own_client:
                self.client.close()
            self.client = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _give(future, outcome, stream):
    # A future of CUDA's takes note of the streams that are current when it gets its value.
    if stream is None:
        return future.set_result(outcome)
    cuda.enter(cuda.device_of(outcome))
    with cuda.using(stream):
        return future.set_result(outcome)


def _value_or_raise(value):
    if isinstance(value, Exception):
        raise value
    return value


def allreduce_hook(
    state: GradwireState, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """The hook for ``register_comm_hook``: averages each bucket over all processes."""
    return state._reduce(bucket.index(), bucket.buffer(), bucket.parameters())
