# SPDX-License-Identifier: BSD-3-Clause
"""The backend "gradwire" of torch.distributed: what one process group does.

Every call posts and returns a GradwireWork at once. Tensors that are contiguous are handed to the C
interface where they lie; it copies what is not in gradient memory. What has to be put in another
order, such as lists of tensors, is copied here besides, and counted in stats().
"""
import ctypes

import torch
from torch._C._distributed_c10d import Backend

from .._cuda import cuda, handle_of
from .._native import (
    ALL_GATHER, ALL_REDUCE, BARRIER, BROADCAST, CALL_BYTES, REDUCE, REDUCE_SCATTER, Call,
    GradwireError, Status,
)
from . import arguments, sparse, widened
from .abort_hooks import AbortHooks
from .all_work import AllWork
from .capture import check_not_captured
from .channel import SENDS, Op
from .datatypes import BYTES, check_reducible, plain_reduction, reduction, redop_name
from .engine import Engine
from .extension import recorder
from .formation import form
from .memory import Pool
from .order import after_ops
from .reconfigure import Reconfigures
from .modes import Modes, writing
from .monitored import Monitored
from .wire import GroupFormats
from .work import Gpu, GradwireWork, seconds

# Smaller buffers of our own come from the heap: a region of gradient memory is 2 MiB at least.
_SHARED_BYTES = 256 << 10

# Of an op of more than these the thread tells: whoever will wait for it computes meanwhile, and a
# result that has to be copied is copied then. A small op is over before the thread has woken up.
_WATCHED_BYTES = 1 << 20


# Torch holds a backend from C++, where it may be left without its Python half.
_alive = set()


def _shape_of(dtype, sizes):
    return "%s%s" % (str(dtype).replace("torch.", ""), list(sizes))


def unversioned(tensor):
    """The same elements. What is written to them leaves the tensor's version as it is, as what the
    daemon writes does: after the call torch looks at a view that requires a gradient, and does not
    bear that it has changed (variable.cpp, "new_fn INTERNAL ASSERT FAILED")."""
    return tensor.data if tensor.requires_grad else tensor.detach()


def put(tensor, values):
    """Copies so many elements to a tensor. Of those that are at one place, as after expand(), the
    last is put there."""
    if tensor.is_contiguous():
        return unversioned(tensor).copy_(values.detach().view(tensor.shape))
    tensor, values = unversioned(tensor), values.detach().view(tensor.shape)
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        if stride == 0 and size > 1:
            tensor, values = tensor.narrow(dim, size - 1, 1), values.narrow(dim, size - 1, 1)
    tensor.copy_(values)


def nbytes_of(tensor):
    return tensor.numel() * tensor.element_size()


class Collectives(Reconfigures, Backend):
    """The collectives that the C interface has. See GradwireBackend for the others."""

    def __init__(self, store, rank, size, timeout_s, name, global_ranks=None, waits=False):
        """``waits``: it has no members until reconfigure() gives it some."""
        super().__init__(rank, size)
        self.global_ranks = list(global_ranks or range(size))
        self.group_name = name
        self.timeout_s = timeout_s
        self.store = store
        self._rank = rank
        self._size = size
        self._sequence = 0
        self._calls = {}  # by name
        self._coalesced = None
        self._formats = GroupFormats()
        self.layout = None  # at which daemons its processes are
        self._abort_hooks = AbortHooks()
        self._start_turns(waits)
        self.engine = Engine.acquire()
        try:
            self._make_channels()
            self._recorder = recorder()
            if size > 1 and not waits:
                self._open(*form(
                    self.engine.client, store, rank, size, min(timeout_s, 3600.0), name,
                    self.global_ranks,
                ))
        except BaseException:
            self._close()
            raise
        self._keep_alive()

    def _keep_alive(self):
        _alive.add(self)

    def _make_channels(self):
        """New ones, of no group yet."""
        if self.engine.pool is None:
            self.engine.pool = Pool(self.engine.client)
        self.channel = self.engine.channel(self.group_name, self._abort_hooks)

    def _open(self, group, layout):
        self.layout = layout
        self._abort_hooks.begin()
        self._monitored = Monitored(self.store, group.group_id, self._rank, self._size,
                                    self.global_ranks, self.group_name)
        for channel in self._channels():
            channel.open(group, layout.explain(self.global_ranks))

    # ---- what torch asks for

    def getBackendName(self):
        return "gradwire"

    def name(self):
        return "gradwire"

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    @property
    def options(self):
        import datetime

        made = Backend.Options("gradwire", datetime.timedelta(seconds=self.timeout_s))
        made.group_name = self.group_name
        made.global_ranks_in_group = self.global_ranks
        return made

    @property
    def supports_splitting(self):
        return True

    @property
    def supports_coalescing(self):
        return True

    @property
    def supports_shrinking(self):
        return True

    @property
    def supports_window(self):
        return False

    @property
    def supports_abort_hooks(self):
        return True

    # Torch 2.15 asks for these by their names in C++, where it has others for its users.
    def registerAbortHook(self, hook_id, hook):
        self._abort_hooks.register(hook_id, hook)

    def unregisterAbortHook(self, hook_id):
        self._abort_hooks.unregister(hook_id)

    @property
    def _supports_time_estimate(self):
        return False

    def set_timeout(self, timeout):
        self.timeout_s = seconds(timeout, self.timeout_s)

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self):
        pass

    def _get_sequence_number_for_group(self):
        return self._sequence

    def supports_tensor_alloc(self, device):
        # An index instead of a device is a GPU's.
        return getattr(device, "type", "cuda") == "cpu"

    def allocate_tensor(self, size, *, dtype, device):
        """[size] of ``dtype`` in gradient memory: ops on it, or on parts of it, copy nothing."""
        if torch.device(device).type != "cpu":
            raise GradwireError(
                Status.UNSUPPORTED, "gradwire has gradient memory for tensors on the CPU, not on %s"
                % device
            )
        tensor = self._live_engine().pool.tensor(dtype, size)
        if tensor is None:
            self.engine.slower_way(
                "the daemon has no gradient memory left: a tensor that was asked for there lies on "
                "the heap, and is copied"
            )
            tensor = torch.empty(size, dtype=dtype, device="cpu")
        return tensor

    # ---- how an op is posted

    def _live_engine(self):
        if self.engine is None:
            raise GradwireError(
                Status.INVALID_ARGUMENT,
                "process group %s was destroyed or aborted" % self.group_name,
            )
        return self.engine

    def _call(self, name):
        """A call of this name, for checks of its arguments."""
        call = self._calls.get(name)
        if call is None:
            call = arguments.Call(name, self.group_name, self._size, self._rank)
            self._calls[name] = call
        return call

    def _work(self, call, tensors, opts, finish=None, about=None, transfers=False):
        """A work of this group's next number. ``about``: more for errors, a text or a redop;
        ``transfers``: it is a send or a recv."""
        name = call.name
        engine = self._live_engine()
        self._check_formed()
        device = None
        for tensor in tensors:
            if cuda.holds(tensor):
                device = cuda.device_of(tensor)
            elif not tensor.is_cpu:
                raise GradwireError(
                    Status.UNSUPPORTED,
                    "%s of a tensor on %s: the backend gradwire takes tensors on the CPU and on "
                    "CUDA devices; move it with cpu()" % (name, tensor.device),
                )
            if tensor.layout is not torch.strided:
                raise GradwireError(
                    Status.UNSUPPORTED,
                    "%s of a sparse tensor: the backend gradwire takes dense tensors; use "
                    "to_dense()" % name,
                )
        if device is not None and any(cuda.device_of(tensor) != device for tensor in tensors):
            raise GradwireError(
                Status.UNSUPPORTED,
                "%s of tensors on %s: those of one call must be on one device"
                % (name, " and ".join(sorted({str(t.device) for t in tensors}))),
            )
        if device is not None:
            check_not_captured(
                device, lambda: "%s of process group %s" % (name, self.group_name),
                "make it before or after the capture, or on a stream that is not captured",
            )
            engine.copies.come_first(device, tensors, transfers)
        self._sequence += 1
        sequence, shapes = self._sequence, [(t.dtype, t.shape) for t in tensors[:2]]
        more = ", ..." if len(tensors) > 2 else ""

        def describe():
            return "rank %d: %s of %s%s%s, call %d of process group %s" % (
                self.global_ranks[self._rank], name,
                " to ".join(_shape_of(*shape) for shape in shapes) or "nothing", more,
                "" if about is None else " (%s)" % (
                    about if isinstance(about, str) else redop_name(about)
                ),
                sequence, self.group_name,
            )

        timeout = self.timeout_s if opts is None else seconds(opts.timeout, self.timeout_s)
        waited = not getattr(opts, "asyncOp", True)
        work = GradwireWork(engine, describe, list(tensors), timeout, waited, finish)
        work.transfers = transfers
        work.number = sequence
        if self._recorder is not None:
            work.recorder, work.entry = self._recorder, self._recorder.recorded()
        if device is not None:
            work.gpu = Gpu(device, *engine.side_streams(device))
        return work

    def _sealed(self, work):
        if work.finish is not None:
            work.modes = Modes(work.tensors)
        if work.gpu is not None and work.finish is not None:
            # What was put in order for it, or read, on the caller's stream comes first.
            work.gpu.before = cuda.current_stream(work.gpu.device).record_event()
            work.gpu.copies = self.engine.copies
            work.gpu.copies.expect(work)
        work.seal()
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _post(self, work, collective, source, target, count, datatype=BYTES, redop=0, root=0,
              factor=None, channel=None, ways=(SENDS,), tag=0, counts=(None, None)):
        """Posts one op. ``source``, ``target``: contiguous tensors, or None for none; ``counts``:
        bytes for each process of the input and of the output, or None."""
        wire = 0
        if self._formats.asked():
            wire = self._formats.of(self, collective, source, datatype, redop, count)
        if self._size == 1:
            # With one process every collective gives it its own input.
            if source is not None and target is not None and source is not target:
                self._copy_alone(source, target)
            return
        stream = None
        if work.gpu is not None:
            # It has what was put in order for this op, too.
            stream = handle_of(cuda.current_stream(work.gpu.device))
        if counts != (None, None):
            counts = [None if given is None else (ctypes.c_uint64 * self._size)(*given)
                      for given in counts]
        # The library compares them with what the call needs.
        sizes = [0 if tensor is None else nbytes_of(tensor) for tensor in (source, target)]
        call = Call(
            CALL_BYTES, collective,
            None if source is None else source.data_ptr(),
            None if target is None else target.data_ptr(),
            count, datatype, redop, root, tag, 0 if factor is None else factor,
            stream, work.gpu is not None, wire, *counts, *sizes, 1,
        )
        if not work.waited and (work.gpu is not None or max(sizes) > _WATCHED_BYTES):
            work.watched = True
        channel = channel or self.channel
        op = Op(work, channel, call, (source, target, counts), ways)
        work.add(op)
        channel.post(op, self._coalesced is not None)

    @staticmethod
    def _copy_alone(source, target):
        if source.data_ptr() != target.data_ptr():
            with writing([target]):
                unversioned(target).view(-1).copy_(source.view(-1).view(target.dtype))

    def _about_to_copy(self, read, written=(), transfers=False):
        """Before tensors are read, or written, on the current stream ahead of an op, or will be
        written behind it. ``transfers``: of a send or a recv."""
        if any(cuda.holds(tensor) for tensor in [*read, *written]):
            after_ops(self._live_engine(), read, written, transfers)

    def _copied(self, tensor):
        engine = self.engine
        if engine is not None:
            with engine.lock:
                engine.counts["copies"] += 1
                engine.counts["copied_bytes"] += nbytes_of(tensor)

    def _copied_out(self, buffer):
        """A result was copied from a buffer of our own, whose memory torch may not give to others
        before the current stream has read it."""
        self._copied(buffer)
        if cuda.holds(buffer):
            cuda.keep(buffer, cuda.current_stream(cuda.device_of(buffer)))

    def _buffer(self, like, count):
        """[count] elements for results on their way: in gradient memory, if they are many."""
        if count * like.element_size() >= _SHARED_BYTES and not cuda.holds(like):
            tensor = self.engine.pool.tensor(like.dtype, count)
            if tensor is not None:
                return tensor
        return torch.empty(count, dtype=like.dtype, device=like.device)

    def _joined(self, tensors, like):
        """Their elements one after the other, in a buffer of our own. ``like``: one of them, or one
        of the same size."""
        if like.numel() * like.element_size() * len(tensors) < _SHARED_BYTES:
            with torch._C._DisableTorchDispatch():  # no mode of the user's sees this
                whole = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
        else:
            whole = self._buffer(like, like.numel() * len(tensors))
            with writing([whole]):
                for block, tensor in zip(whole.view(len(tensors), -1), tensors):
                    block.copy_(tensor.detach().reshape(-1))
        self._copied(whole)
        return whole

    def _dense(self, tensor, transfers=False):
        """The tensor's elements, contiguous; a copy if they are not."""
        if tensor.is_contiguous():
            return tensor
        self._about_to_copy([tensor], (), transfers)
        self._copied(tensor)
        return tensor.detach().contiguous()

    def _target(self, tensor, transfers=False):
        """(where a result may be written, contiguous; what copies it to the tensor)."""
        if tensor.is_contiguous():
            return tensor, None
        self._about_to_copy([], [tensor], transfers)
        tensor = tensor.detach()
        flat = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)

        def copy():
            put(tensor, flat)
            self._copied_out(flat)

        return flat, copy

    def _reduction(self, source, op):
        """How a contiguous tensor is reduced: (what of it, count, datatype, redop, factor)."""
        plain = plain_reduction(source.dtype, op)
        if plain is not None:
            return (source, source.numel(), *plain, None)
        view, datatype, redop, factor = reduction(source.detach(), op)
        if factor is not None and self._size == 1:
            # A group of one process does no op, which would multiply.
            view = view * factor
        return view, view.numel(), datatype, redop, factor

    def _apart(self, tensor, transfers=False):
        """A copy of the tensor's elements, contiguous, for what others of the call write over."""
        dense = self._dense(tensor, transfers)
        if dense is not tensor:
            return dense
        self._about_to_copy([tensor], (), transfers)
        self._copied(tensor)
        return tensor.detach().clone()

    # ---- collectives

    def _add_widened(self, work, collective, source, out, op, root=0):
        """Of int16, which goes as int32."""
        check_reducible([source], op)
        self._live_engine().slower_way("int16 is reduced as int32: in twice the bytes")
        self._about_to_copy([source], [] if out is None else [out])
        whole = widened.wide(source)
        self._copied(whole)
        view, count, datatype, redop, _ = self._reduction(whole, widened.reduced_by(op))
        if collective == REDUCE_SCATTER:
            count //= self._size
        result = whole
        if out is not None and collective != ALL_REDUCE:
            result = torch.empty(out.shape, dtype=whole.dtype, device=whole.device)
        self._post(work, collective, view, None if out is None else result, count, datatype, redop,
                   root)
        if out is None:
            return None
        written = out.detach()

        def copy():
            put(written, widened.narrow(result, op, self._size))
            self._copied_out(result)

        return copy

    def _add_allreduce(self, work, tensor, op, apart=False):
        if tensor.dtype is widened.NARROW:
            return self._add_widened(work, ALL_REDUCE, tensor, tensor, op)
        if apart:
            # Another tensor of the call may have this memory: all are read before one is written.
            source = target = self._apart(tensor)
            self._about_to_copy([], [tensor])
            written = tensor.detach()

            def copy():
                put(written, target)
                self._copied_out(target)
        else:
            source = self._dense(tensor)
            target, copy = (source, None) if source is tensor else self._target(tensor)
        view, count, datatype, redop, factor = self._reduction(source, op)
        self._post(work, ALL_REDUCE, view, target, count, datatype, redop, factor=factor)
        return copy

    def _reduced(self, call, tensors, opts):
        op = opts.reduceOp
        work = self._work(call, tensors, opts, about=op)
        met = ()
        if len(tensors) > 1:
            check_reducible(tensors, op)
            met = arguments.met([[tensor] for tensor in tensors])
        work.finish = _all_of([self._add_allreduce(work, tensor, op, number in met)
                               for number, tensor in enumerate(tensors)])
        return self._sealed(work)

    def allreduce(self, tensors, opts):
        call = self._call("allreduce")
        if arguments.one(call, tensors).layout is not torch.strided:
            return sparse.all_reduce(self, call, tensors[0], opts)
        return self._reduced(call, tensors, opts)

    def allreduce_coalesced(self, tensors, opts):
        call = self._call("allreduce_coalesced")
        arguments.some(call, tensors)
        return self._reduced(call, tensors, opts)

    def broadcast(self, tensors, opts):
        call, root = self._call("broadcast"), opts.rootRank
        tensor = arguments.one(call, tensors)
        arguments.root(call, root, opts.rootTensor)
        work = self._work(call, tensors, opts, about="from %d" % root)
        work.finish = _all_of([self._add_broadcast(work, tensor, root)])
        return self._sealed(work)

    def _add_broadcast(self, work, tensor, root):
        copy = None
        if self._rank == root:
            target = self._dense(tensor)
        else:
            target, copy = self._target(tensor)
        self._post(work, BROADCAST, target, target, nbytes_of(target), root=root)
        return copy

    def reduce(self, tensors, opts):
        call, root = self._call("reduce"), opts.rootRank
        tensor = arguments.one(call, tensors)
        arguments.root(call, root, opts.rootTensor)
        work = self._work(
            call, tensors, opts, about="%s to %d" % (redop_name(opts.reduceOp), root)
        )
        work.finish = _all_of([self._add_reduce(work, tensor, tensor, root, opts.reduceOp)])
        return self._sealed(work)

    def _add_reduce(self, work, tensor, out, root, op):
        if tensor.dtype is widened.NARROW:
            out = out if self._rank == root else None
            return self._add_widened(work, REDUCE, tensor, out, op, root)
        view, count, datatype, redop, factor = self._reduction(self._dense(tensor), op)
        target = copy = None
        if self._rank == root:
            target, copy = self._target(out)
        self._post(work, REDUCE, view, target, count, datatype, redop, root, factor)
        return copy

    def barrier(self, opts):
        work = self._work(self._call("barrier"), [], opts)
        # Its end says that earlier calls have ended here too: their results are there.
        work.follow_all(self._unfinished_works())
        self._post(work, BARRIER, None, None, 0, 0)
        return self._sealed(work)

    def monitored_barrier(self, opts, wait_all_ranks=False):
        """Torch's dist.monitored_barrier(). All who are missing are named in any case."""
        self._live_engine()
        self._check_formed()
        if self._size > 1:
            none = opts.timeout is not None and not opts.timeout  # 0: who is here now
            self._monitored.barrier(0.0 if none else seconds(opts.timeout, self.timeout_s))

    def _unfinished_works(self):
        """Of this group's calls, without sends and receives: what ends those may be what the other
        process does after the barrier."""
        works = {}
        for channel in self._channels():
            for op in list(channel.in_flight) + channel.queued():
                if not op.work.transfers:
                    works[op.work] = None
        return list(works)

    # ---- all-gather

    def _add_allgather(self, work, source, whole):
        """``whole`` [P x count of source], contiguous, in the order of the ranks."""
        self._post(work, ALL_GATHER, source, whole, nbytes_of(source))

    def _gathered_whole(self, name, outputs, inputs, opts):
        call = self._call(name)
        arguments.pairs(call, outputs, inputs)
        for output, source in zip(outputs, inputs):
            arguments.whole_and_part(call, output, source, ("output", "input"))
        work = self._work(call, [*inputs, *outputs], opts)
        work.tensors = list(outputs)
        met = arguments.met(list(zip(outputs, inputs))) if len(outputs) > 1 else ()
        sources = [self._apart(source) if number in met else self._dense(source)
                   for number, source in enumerate(inputs)]
        last = []
        for output, source in zip(outputs, sources):
            target, copy = self._target(output)
            self._add_allgather(work, source, target)
            last.append(copy)
        work.finish = _all_of(last)
        return self._sealed(work)

    def all_gather_single(self, output, input, opts):
        return self._gathered_whole("all_gather_single", [output], [input], opts)

    def _allgather_base(self, output, input, opts):
        return self.all_gather_single(output, input, opts)

    def all_gather_single_coalesced(self, outputs, inputs, opts):
        return self._gathered_whole("all_gather_single_coalesced", outputs, inputs, opts)

    def allgather(self, output_lists, inputs, opts):
        call = self._call("allgather")
        arguments.one(call, inputs)
        arguments.one(call, output_lists, "one list of outputs")
        return self._gathered_lists(call, output_lists, inputs, opts)

    def allgather_coalesced(self, output_lists, inputs, opts):
        # Here the outer list has an entry for each rank.
        call = self._call("allgather_coalesced")
        arguments.some(call, inputs)
        arguments.blocks(call, output_lists, "lists of outputs")
        for outputs in output_lists:
            arguments.pairs(call, outputs, inputs)
        by_tensor = [list(column) for column in zip(*output_lists)]
        return self._gathered_lists(call, by_tensor, inputs, opts)

    def _gathered_lists(self, call, output_lists, inputs, opts):
        for outputs, source in zip(output_lists, inputs):
            arguments.blocks(call, outputs, "outputs")
            arguments.one_type(call, [source, *outputs])
            arguments.own_size(call, outputs, "output", source, "the input")
        work = self._work(call, [*inputs, *(t for out in output_lists for t in out)], opts)
        work.tensors = [t for out in output_lists for t in out]
        last = []
        for outputs, source in zip(output_lists, inputs):
            last += self._add_list(work, outputs, source)
        work.finish = _all_of(last)
        return self._sealed(work)

    def _add_list(self, work, outputs, source):
        self._about_to_copy([], outputs)
        given, source = source, self._dense(source)
        if any(t.numel() != source.numel() for t in outputs):
            # Blocks of several sizes: each process's by a broadcast, this one's of a copy, since
            # the others' may be written over it.
            own = self._apart(given) if source is given else source
            last = []
            for rank, tensor in enumerate(outputs):
                if rank == self._rank:
                    last.append(lambda: put(outputs[self._rank], own))
                    self._add_broadcast(work, own, rank)
                else:
                    last.append(self._add_broadcast(work, tensor, rank))
            return last
        whole = self._buffer(source, source.numel() * self._size)

        def spread():
            for tensor, block in zip(outputs, whole.view(self._size, -1)):
                put(tensor, block)
            self._copied_out(whole)

        self._add_allgather(work, source, whole)
        return [spread]

    # ---- reduce-scatter

    def _add_reduce_scatter(self, work, whole, output, op):
        """``whole`` [P x count of output], contiguous, in the order of the ranks."""
        if whole.dtype is widened.NARROW:
            return self._add_widened(work, REDUCE_SCATTER, whole, output, op)
        view, count, datatype, redop, factor = self._reduction(whole, op)
        target, copy = self._target(output)
        self._post(
            work, REDUCE_SCATTER, view, target, count // self._size, datatype, redop, factor=factor
        )
        return copy

    def _scattered_whole(self, name, outputs, inputs, opts):
        call = self._call(name)
        arguments.pairs(call, outputs, inputs)
        for output, source in zip(outputs, inputs):
            arguments.whole_and_part(call, source, output, ("input", "output"))
        work = self._work(call, [*inputs, *outputs], opts, about=opts.reduceOp)
        work.tensors = list(outputs)
        met = ()
        if len(outputs) > 1:
            check_reducible(inputs, opts.reduceOp)
            met = arguments.met(list(zip(outputs, inputs)))
        sources = [self._apart(source) if number in met else self._dense(source)
                   for number, source in enumerate(inputs)]
        work.finish = _all_of([self._add_reduce_scatter(work, source, output, opts.reduceOp)
                               for output, source in zip(outputs, sources)])
        return self._sealed(work)

    def reduce_scatter_single(self, output, input, opts):
        return self._scattered_whole("reduce_scatter_single", [output], [input], opts)

    def _reduce_scatter_base(self, output, input, opts):
        return self.reduce_scatter_single(output, input, opts)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        return self._scattered_whole("reduce_scatter_single_coalesced", outputs, inputs, opts)

    def reduce_scatter(self, outputs, input_lists, opts):
        call = self._call("reduce_scatter")
        output = arguments.one(call, outputs)
        inputs = arguments.one(call, input_lists, "one list of inputs")
        arguments.blocks(call, inputs, "inputs")
        arguments.one_type(call, [output, *inputs])
        arguments.own_size(call, inputs, "input", output, "the output")
        op = opts.reduceOp
        work = self._work(call, [*inputs, output], opts, about=op)
        work.tensors = [output]
        if any(t.numel() != output.numel() for t in inputs):
            # All are read before the output is written.
            met = arguments.met([[output], *([tensor] for tensor in inputs)])
            sources = [self._apart(tensor) if number + 1 in met else self._dense(tensor)
                       for number, tensor in enumerate(inputs)]
            last = [self._add_reduce(work, source, output, rank, op)
                    for rank, source in enumerate(sources)]
        else:
            self._about_to_copy(inputs)
            whole = self._joined(inputs, output)
            last = [self._add_reduce_scatter(work, whole, output, op)]
        work.finish = _all_of(last)
        return self._sealed(work)

    # ---- coalescing, the end

    def start_coalescing(self):
        self._coalesced = []

    def end_coalescing(self):
        works, self._coalesced = self._coalesced or [], None
        if works and self._size > 1:
            self._live_engine().client.flush()
        return works[0] if len(works) == 1 else AllWork(works)

    def _channels(self):
        return [self.channel]

    def _close(self):
        engine, self.engine = self.engine, None
        if engine is None:
            return
        _alive.discard(self)
        try:
            engine.close_channels(self._channels())
        finally:
            engine.release()

    def shutdown(self):
        """Leaves the group. Ops that are unfinished end with errors, here and elsewhere."""
        self._close()

    def end_everywhere(self):
        """Aborts the group, on every rank: what is unfinished ends with an error."""
        if self.engine is not None and self.channel.group is not None:
            self._abort_hooks.call()
            try:
                self.channel.group.abort(
                    "rank %d aborted its process group %s"
                    % (self.global_ranks[self._rank], self.group_name)
                )
            except GradwireError:
                pass  # there is nothing left to abort

    def abort(self):
        """Ends the group on every rank."""
        self.end_everywhere()
        self._close()


def _all_of(functions):
    if not any(functions):
        return None
    functions = [function for function in functions if function is not None]

    def run():
        for function in functions:
            function()

    return run
