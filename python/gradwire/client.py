# SPDX-License-Identifier: BSD-3-Clause
"""Client, Memory, Group and Work: the handles of the C interface as Python objects."""
import ctypes
import json
import os
import time
import weakref

import numpy

from . import _native
from ._cuda import CudaView, cuda, handle_of, is_torch
from ._native import (
    ALL_GATHER,
    ALL_REDUCE,
    BARRIER,
    BROADCAST,
    REDUCE,
    REDUCE_SCATTER,
    MAX_U16,
    MAX_U32,
    MAX_U64,
    GradwireError,
    Status,
    check,
    integer,
    lib,
    milliseconds,
)
from .transfers import Transfers

OPS = {"sum": 0, "avg": 1, "min": 2, "max": 3, "prod": 4, "band": 5, "bor": 6, "bxor": 7,
       "premul_sum": 8}
# How elements of a sum travel between ranks (doc/formats.md).
WIRES = {"same": 0, "bf16": 1, "int8": 2}
DATATYPES = {
    "fp32": 0,
    "fp64": 1,
    "fp16": 2,
    "bf16": 3,
    "int8": 4,
    "int32": 5,
    "int64": 6,
    "uint8": 7,
}
_OF_NUMPY = {
    "float32": "fp32",
    "float64": "fp64",
    "float16": "fp16",
    "int8": "int8",
    "int32": "int32",
    "int64": "int64",
    "uint8": "uint8",
}
_OF_TORCH = dict(_OF_NUMPY, bfloat16="bf16")

_UNKNOWN = object()

# A wait in C does not see Ctrl-C: it is taken in slices of so many seconds.
_WAIT_SLICE_S = 1.0


def _encode_path(path):
    return None if path is None else os.fsencode(path)


def daemon_status(socket=None, timeout=5.0):
    """The status of a daemon, as the dictionary that its JSON is. Needs no client."""
    room = 65536
    while True:
        text = ctypes.create_string_buffer(room)
        needed = ctypes.c_size_t()
        status = lib.gw_daemon_status(
            _encode_path(socket), milliseconds(timeout), text, room, ctypes.byref(needed)
        )
        if status == Status.RESOURCE_EXHAUSTED and needed.value > room:
            room = needed.value + 65536  # it may have grown by the next call
            continue
        check(status)
        return json.loads(text.value.decode())


class _Buffer:
    """What an array or tensor is to the C interface."""

    on_gpu = False

    def __init__(self, value, dtype, moved=False):
        """``moved``: its elements are not computed with, so that they may be of any type."""
        if isinstance(value, numpy.ndarray):
            if not value.flags["C_CONTIGUOUS"]:
                raise ValueError("the array is not contiguous: copy it first")
            if not value.dtype.isnative and not moved:
                raise TypeError("the array is not in this machine's byte order: convert it with "
                                "array.astype(array.dtype.newbyteorder('='))")
            self.name = _OF_NUMPY.get(value.dtype.name)
            self.kind = value.dtype.name
            self.address = value.ctypes.data
            self.count = value.size
            self.itemsize = value.dtype.itemsize
            self.writable = value.flags.writeable
        elif is_torch(value):
            self.on_gpu = cuda.holds(value)
            if not self.on_gpu and value.device.type != "cpu":
                raise GradwireError(
                    Status.UNSUPPORTED,
                    "a tensor on %s: those on the CPU and on CUDA devices can be reduced"
                    % value.device,
                )
            if not value.is_contiguous():
                raise ValueError("the tensor is not contiguous: call contiguous() first")
            self.kind = str(value.dtype).replace("torch.", "")
            self.name = _OF_TORCH.get(self.kind)
            self.address = value.data_ptr()
            self.count = value.numel()
            self.itemsize = value.element_size()
            self.writable = True
        elif hasattr(value, "__cuda_array_interface__"):
            face = value.__cuda_array_interface__
            kind = numpy.dtype(face["typestr"])
            count = int(numpy.prod(face["shape"], dtype=numpy.int64))
            strides = face.get("strides")
            if strides is not None and strides != numpy.empty(face["shape"], kind).strides:
                raise ValueError("the array on the GPU is not contiguous: copy it first")
            self.on_gpu = True
            self.kind = kind.name
            self.name = _OF_NUMPY.get(kind.name)
            self.address, read_only = face["data"]
            self.count = count
            self.itemsize = kind.itemsize
            self.writable = not read_only
            self.stream = face.get("stream")
        else:
            raise TypeError(
                "%s is neither a numpy array nor a torch tensor nor an array on a GPU"
                % type(value).__name__
            )
        self.nbytes = self.count * self.itemsize
        if dtype is not None:
            # numpy has no bf16: its bits may come as another type of two bytes.
            if dtype != "bf16" or self.kind not in ("uint16", "int16", "bfloat16"):
                if dtype != self.name:
                    raise TypeError("elements of %s cannot be taken for %s" % (self.kind, dtype))
            self.name = dtype
        if self.name is None and moved:
            if self.kind == "object":
                raise TypeError("elements of object are pointers: they mean nothing elsewhere")
            self.name = "uint8"
            self.count *= self.itemsize
        if self.name is None:
            raise TypeError(
                "elements of %s cannot be reduced: %s can, and 16-bit integers with dtype='bf16'"
                % (self.kind, ", ".join(DATATYPES))
            )


class _Region:
    """Shared memory of the C library: freed with the last view of it."""

    def __init__(self, client, nbytes):
        self.client = client
        self.handle = None
        nbytes = integer(nbytes, "nbytes", 0, MAX_U64)
        handle = ctypes.c_void_p()
        client._free_unfreed()
        check(lib.gw_memory_alloc(client._live_handle(), nbytes, ctypes.byref(handle)))
        self.handle = handle

    def free(self):
        if self.handle is not None:
            check(lib.gw_memory_free(self.handle))
            self.handle = None

    def __del__(self):
        if getattr(self, "handle", None) is not None and lib is not None:
            if lib.gw_memory_free(self.handle) != Status.OK:
                # An op that nobody waited for still uses it: the client tries again.
                self.client._unfreed.append(self.handle)
            self.handle = None


class Memory:
    """Memory that the daemon reads and writes where it lies. Arrays and tensors that are views of
    it keep it alive."""

    def __init__(self, client, nbytes):
        self._region = _Region(client, nbytes)
        self._buffer = None  # weak: the buffer owns the region, so that views outlive this object
        self.address = lib.gw_memory_address(self._region.handle)
        self.nbytes = lib.gw_memory_bytes(self._region.handle)
        self.numa_node = lib.gw_memory_numa_node(self._region.handle)
        number = lib.gw_memory_device(self._region.handle)
        # CUDA's number of the GPU that it is on, None where it is memory of the host.
        self.device = None if number < 0 else number

    def _view(self):
        if self._region is None:
            raise GradwireError(Status.INVALID_ARGUMENT, "the memory has been freed")
        buffer = self._buffer() if self._buffer is not None else None
        if buffer is None:
            if self.device is None:
                buffer = (ctypes.c_char * self.nbytes).from_address(self.address)
                buffer.region = self._region
            else:
                buffer = CudaView(self._region, self.address, self.nbytes)
            self._buffer = weakref.ref(buffer)
        return buffer

    def array(self, dtype="uint8", count=None, offset=0):
        """A numpy array of ``count`` elements (as many as fit, if None), ``offset`` bytes in."""
        if self.device is not None:
            raise GradwireError(
                Status.UNSUPPORTED,
                "the memory is on GPU %d, where numpy has no arrays: see tensor() and cuda_array()"
                % self.device,
            )
        dtype = numpy.dtype(dtype)
        if count is None:
            count = (self.nbytes - offset) // dtype.itemsize
        return numpy.frombuffer(self._view(), dtype=dtype, count=count, offset=offset)

    def tensor(self, dtype, count=None, offset=0):
        """The same as a torch tensor, on the GPU where the memory is; ``dtype`` is torch's."""
        import torch

        if count is None:
            count = (self.nbytes - offset) // torch.empty(0, dtype=dtype).element_size()
        if self.device is not None:
            return cuda.view(self._view(), self.device, dtype, count, offset)
        return torch.frombuffer(self._view(), dtype=dtype, count=count, offset=offset)

    def cuda_array(self):
        """Its bytes for cupy and others that take a __cuda_array_interface__."""
        if self.device is None:
            raise GradwireError(
                Status.UNSUPPORTED, "the memory is the host's, not a GPU's: use array()"
            )
        return self._view()

    def free(self):
        """Gives it back now; BUSY while views of it or ops on it are left. Without this it is given
        back with its last view."""
        if self._region is None:
            return
        if self._buffer is not None and self._buffer() is not None:
            raise GradwireError(
                Status.BUSY,
                "arrays or tensors are views of these %d bytes: delete them first" % self.nbytes,
            )
        self._region.free()
        self._region = None

    def __len__(self):
        return self.nbytes


class Work:
    """One op. It keeps its arrays alive until it is done. If it is dropped before that, the op goes
    on, and an output that is not shared memory is never written. Arrays on a GPU, which may not
    have been read yet, stay alive all the same until a later call of the client finds the op
    done."""

    def __init__(self, handle, input, output, client=None):
        """``client``: where the arrays are kept if this is dropped, if they are on a GPU."""
        self._handle = handle
        self._client = client
        self._keep = (input, output)
        self._output = output
        self._finish = None  # brings the result to the output, if something has to

    def wait(self, timeout=60.0):
        """Waits and returns the array or tensor that has the result. Raises what became of the op,
        or TIMED_OUT after ``timeout`` seconds: the op then goes on, and may be waited for again."""
        deadline = time.monotonic() + milliseconds(timeout) / 1000
        while True:
            left = max(0.0, deadline - time.monotonic())
            status = lib.gw_wait(self._handle, milliseconds(min(left, _WAIT_SLICE_S)))
            if status == Status.OK:
                return self._done(True)
            error = _native.error_of(status)
            if lib.gw_work_is_done(self._handle):
                self._done()
                raise error
            if status != Status.TIMED_OUT or left <= _WAIT_SLICE_S:
                raise error

    def is_done(self):
        """Whether the op has ended. Raises what became of it where it failed."""
        done = ctypes.c_int()
        status = lib.gw_test(self._handle, ctypes.byref(done))
        if status != Status.OK:
            error = _native.error_of(status)
            if done.value:
                self._done()
            raise error
        if done.value:
            self._done(True)
        return bool(done.value)

    def _done(self, well=False):
        finish, self._finish = self._finish, None
        if well and finish is not None:
            finish()
        self._keep = None
        return self._output

    @property
    def op_seq(self):
        """Number of the op in its group, from 1; 0 while it is not known."""
        return lib.gw_work_op_seq(self._handle)

    @property
    def nbytes(self):
        """How many bytes a send or a recv moved, once it is known that it is done: of a recv with
        ``up_to`` what came. 0 before, and for any other op."""
        return lib.gw_work_bytes(self._handle)

    def __del__(self):
        # Where nobody waited, the op goes on: shared memory is held back until it is done (see
        # _Region), and other memory is not touched any more.
        if getattr(self, "_handle", None) is not None and lib is not None:
            if self._client is not None and self._keep is not None:
                self._client._dropped.append((self._handle, self._keep))
            else:
                lib.gw_work_free(self._handle)
            self._handle = None


def _check_op(op, factor):
    if not isinstance(op, str) or op not in OPS:
        raise ValueError("op is %r: it must be one of %s" % (op, ", ".join(OPS)))
    if (op == "premul_sum") != (factor is not None):
        raise ValueError("op is %r and factor is %r: premul_sum, and nothing else, has a factor"
                         % (op, factor))


def wire_number(wire):
    """The number of the wire format ``wire``."""
    if not isinstance(wire, str) or wire not in WIRES:
        raise ValueError("wire is %r: it must be one of %s" % (wire, ", ".join(WIRES)))
    return WIRES[wire]


def _check_dtype(dtype):
    if dtype is not None and (not isinstance(dtype, str) or dtype not in DATATYPES):
        raise ValueError("dtype is %r: it must be one of %s" % (dtype, ", ".join(DATATYPES)))


def _flat(value):
    return value.view(-1) if is_torch(value) else value.reshape(-1)


class Group(Transfers):
    """This client's part in a group. Made by Client.join, Client.join_processes or
    rendezvous.form_group.

    ``processes``: how many the group has; ``process``: this one's number among them, by which roots
    and blocks go; ``rank`` of ``nranks``: its daemon's; ``member`` of ``members``: its own at that
    daemon, where other daemons may have more or fewer."""

    def __init__(self, client, handle, group_id=0, epoch=0):
        self._client = client
        self._handle = handle
        self.group_id, self.epoch = group_id, epoch  # as it was joined: its name at the daemon
        info = _native.GroupInfo(struct_bytes=ctypes.sizeof(_native.GroupInfo))
        check(lib.gw_group_get_info(handle, ctypes.byref(info)))
        self.process = info.process
        self.processes = info.processes
        self.rank = info.rank
        self.nranks = info.nranks
        self.member = info.member
        self.members = info.member_count

    def rank_of(self, process):
        """The rank of a process, as errors name ranks."""
        return lib.gw_group_rank_of(
            self._live_handle(), integer(process, "process", 0, self.processes - 1)
        )

    def _live_handle(self):
        if self._handle is None:
            raise GradwireError(Status.INVALID_ARGUMENT, "the group has been closed")
        return self._handle

    def all_reduce(self, value, op="sum", out=None, dtype=None, tag=0, stream=None, factor=None,
                   wire=None, residuals=(None, None)):
        """Posts an all-reduce of an array or tensor and returns its Work at once: of numpy's, of
        torch's on the CPU or a CUDA device, or of whatever has a __cuda_array_interface__.

        Every member of every rank posts the same ops in the same order. The result comes in
        ``out``, or in ``value`` itself where ``out`` is None; until the work is done do not write
        the one nor touch the other. ``dtype="bf16"`` takes 16-bit integers for bf16. Memory of
        Client.allocate is reduced where it lies; other memory is copied and counted.
        ``op="premul_sum"``, of floats, multiplies the input by ``factor`` before it is summed: in
        fp64 for fp64, else in fp32. Each process has its own.
        ``wire="bf16"`` (of fp32) and ``"int8"`` (of fp32 and bf16), for sum and avg: elements
        travel in that format, in a half or a quarter of fp32's bytes, and the result is rounded
        (doc/formats.md says how). Every process passes the same; UNSUPPORTED says why this group
        has no formats. ``residuals=(before, after)``, of such an op, are two arrays of fp32 of
        the input's size, in memory of Client.allocate, for error feedback: ``before`` is added to
        what this rank gives, and what its encoding loses is written to ``after``, to be the next
        step's ``before``. Member 0 of each rank passes them; either may be None.

        What is on a GPU may still be computed: it is read when ``stream`` has come to this call.
        None is torch's current stream of that device. If the daemon's gradient memory is the host's
        it is copied there and back on streams beside that one, by the calls of this client that
        post, wait or ask; if it is on another GPU, torch copies it and waits. When the work is done
        the result is there for every stream.
        """
        _check_op(op, factor)
        _check_dtype(dtype)
        source = _Buffer(value, dtype)
        target = source if out is None else _Buffer(out, dtype)
        if (source.name, source.count) != (target.name, target.count):
            raise ValueError(
                "%d elements of %s cannot be reduced into %d of %s: out must have the input's "
                "size and type"
                % (source.count, source.name, target.count, target.name)
            )
        if not target.writable:
            raise ValueError("the output array is read-only: pass a writable one")
        out = value if out is None else out
        if source.on_gpu != target.on_gpu:
            raise ValueError("one of input and output is on a GPU and the other is not: put both "
                             "on the same side")
        if source.on_gpu and self._is_elsewhere(value):
            return self._all_reduce_staged(value, op, out, tag, factor, wire, residuals)
        return self._post(ALL_REDUCE, value, out, source, target, source.count, tag, OPS[op],
                          factor=factor, stream=stream, wire=wire, residuals=residuals)

    def reduce_scatter(self, value, out=None, op="sum", dtype=None, tag=0, factor=None, wire=None,
                       residuals=(None, None)):
        """Posts a reduce-scatter and returns its Work at once: process p gets block p of what the
        inputs of all processes come to. ``value`` has ``processes`` blocks of equal size, one after
        the other. ``out`` gets this process's block; None: it is written over this process's block
        of ``value``, and wait() returns that, flat. ``out`` may be that block too. For the rest see
        all_reduce."""
        _check_op(op, factor)
        if out is None:
            self._single(value, dtype, "reduce-scatter")
            count = (value.numel() if is_torch(value) else value.size) // self.processes
            out = _flat(value)[self.process * count : (self.process + 1) * count]
        source, target = self._pair(value, out, dtype, "reduce-scatter", self.processes, 1)
        return self._post(REDUCE_SCATTER, value, out, source, target, target.count, tag, OPS[op],
                          factor=factor, wire=wire, residuals=residuals)

    def all_gather(self, value, out, dtype=None, tag=0):
        """Posts an all-gather and returns its Work at once: ``out`` gets the ``value`` of every
        process, block p from process p. ``value`` may be this process's block of ``out``; None is
        that block. Elements of any type: they are moved as they are."""
        if value is None:
            self._single(out, dtype, "all-gather", True)
            count = (out.numel() if is_torch(out) else out.size) // self.processes
            value = _flat(out)[self.process * count : (self.process + 1) * count]
        source, target = self._pair(value, out, dtype, "all-gather", 1, self.processes, True)
        return self._post(ALL_GATHER, value, out, source, target, source.count, tag)

    def broadcast(self, value, root=0, dtype=None, tag=0):
        """Posts a broadcast and returns its Work at once: every process's ``value`` becomes that of
        process ``root``. Elements of any type: they are moved as they are."""
        source, target = self._pair(value, value, dtype, "broadcast", 1, 1, True)
        return self._post(BROADCAST, value, value, source, target, source.count, tag,
                          root=self._root(root))

    def reduce(self, value, root=0, op="sum", out=None, dtype=None, tag=0, factor=None, wire=None):
        """Posts a reduce and returns its Work at once: process ``root`` gets in ``out``, or in
        ``value`` itself if that is None, what the inputs of all come to. Elsewhere ``out`` is not
        used, ``value`` stays as it is, and wait() returns None."""
        _check_op(op, factor)
        root = self._root(root)
        if self.process != root:
            source = self._single(value, dtype, "reduce")
            return self._post(REDUCE, value, None, source, None, source.count, tag, OPS[op], root,
                              factor, wire=wire)
        out = value if out is None else out
        source, target = self._pair(value, out, dtype, "reduce", 1, 1)
        return self._post(REDUCE, value, out, source, target, source.count, tag, OPS[op], root,
                          factor, wire=wire)

    def barrier(self, tag=0):
        """Posts a barrier and returns its Work at once: it is done when every process has posted
        it. It says nothing of other ops: wait for those by their own works."""
        return self._post(BARRIER, None, None, None, None, 0, tag)

    def _root(self, root):
        return integer(root, "root", 0, self.processes - 1)

    def _single(self, value, dtype, what, moved=False):
        _check_dtype(dtype)
        buffer = _Buffer(value, dtype, moved)
        if buffer.on_gpu and self._is_elsewhere(value):
            raise GradwireError(
                Status.UNSUPPORTED,
                "%s of a tensor on %s: the daemon's gradient memory is on GPU %d; copy it there"
                % (what, value.device, self._client.memory_device()),
            )
        return buffer

    def _pair(self, value, out, dtype, what, inputs, outputs, moved=False):
        """Input and output as buffers. Their sizes must be as ``inputs`` to ``outputs``."""
        source = self._single(value, dtype, what, moved)
        target = source if out is value else self._single(out, dtype, what, moved)
        if source.name != target.name or source.count * outputs != target.count * inputs:
            wanted = "output must have the input's size"
            if inputs > 1:
                wanted = "input must have %d times the output's size" % inputs
            elif outputs > 1:
                wanted = "output must have %d times the input's size" % outputs
            raise ValueError(
                "%s of %d elements of %s into %d of %s: among %d processes the %s, and its type"
                % (what, source.count, source.name, target.count, target.name, self.processes,
                   wanted)
            )
        if not target.writable:
            raise ValueError("the output array is read-only: pass a writable one")
        if source.on_gpu != target.on_gpu:
            raise ValueError("one of input and output is on a GPU and the other is not: put both "
                             "on the same side")
        return source, target

    def _post(self, collective, value, out, source, target, count, tag, redop=0, root=0,
              factor=None, stream=None, counts=(None, None), up_to=False, pair_stream=0, wire=None,
              residuals=(None, None)):
        given = source if source is not None else target
        if given is None or not given.on_gpu:
            stream = None
        elif stream is None:
            stream = self._stream_of(value if value is not None else out, given)
        call = _native.Call(
            _native.CALL_BYTES, collective,
            None if source is None else source.address,
            None if target is None else target.address,
            count, 0 if given is None else DATATYPES[given.name], redop, root,
            integer(tag, "tag", 0, MAX_U32), 0 if factor is None else factor,
            None if stream is None else handle_of(stream), stream is not None,
            0 if wire is None else wire_number(wire), *counts,
            0 if source is None else source.nbytes, 0 if target is None else target.nbytes, 1, 0,
            *(self._residual(array, source) for array in residuals),
            up_to, integer(pair_stream, "pair_stream", 0, MAX_U32),
        )
        handle = ctypes.c_void_p()
        check(lib.gw_post(self._live_handle(), ctypes.byref(call), ctypes.byref(handle)))
        self._client._free_dropped()
        on_gpu = given is not None and given.on_gpu
        work = Work(handle, value, out, self._client if on_gpu else None)
        work._keep += tuple(residuals)
        return work

    @staticmethod
    def _residual(array, source):
        """The address of a residual, which has as many elements as the input."""
        if array is None:
            return None
        buffer = _Buffer(array, None)
        if buffer.on_gpu or buffer.name != "fp32" or buffer.count != source.count:
            raise ValueError("a residual has %d elements of %s%s: it needs %d of fp32, of the host"
                             % (buffer.count, buffer.name, " on a GPU" if buffer.on_gpu else "",
                                source.count))
        if not buffer.writable:
            raise ValueError("a residual is read-only")
        return buffer.address

    def _is_elsewhere(self, value):
        """Whether a value on a GPU is torch's, and the daemon's gradient memory on another GPU."""
        if not is_torch(value):
            return False
        home = self._client.memory_device()
        return home is not None and cuda.index_of(value) != home

    @staticmethod
    def _stream_of(value, source):
        if is_torch(value):
            return cuda.current_stream(value.device)
        return 0 if source.stream is None else source.stream

    def _all_reduce_staged(self, value, op, out, tag, factor, wire, residuals):
        """Of a tensor on a GPU that the daemon's gradient memory is not on."""
        nbytes = value.numel() * value.element_size()
        memory = self._client.allocate(max(nbytes, 1))
        shared = memory.tensor(value.dtype, value.numel())
        shared.copy_(value.view(-1))
        work = self.all_reduce(shared, op, tag=tag, factor=factor, wire=wire,
                               residuals=residuals)
        work._output = out
        work._keep = (shared, value, out)
        work._finish = lambda: out.view(-1).copy_(shared)
        return work

    def check(self):
        """Raises ABORTED with the reason once the group was aborted."""
        check(lib.gw_group_error(self._live_handle()))

    def abort(self, reason=""):
        """Aborts the group on every rank, with ``reason`` in everyone's error."""
        check(lib.gw_group_abort(self._live_handle(), reason.encode()))

    def leave(self):
        """Leaves, and waits until the daemon has closed its part."""
        check(lib.gw_group_leave(self._live_handle()))

    def serve(self):
        """At a rank without members: lets the daemon sum for the others until they have left. No
        bound: a group lives as long as its job. Raises ABORTED with the reason if it was aborted.
        If this process ends before, it is."""
        while True:
            try:
                self.leave()
                break
            except GradwireError as error:
                if error.code != Status.TIMED_OUT:
                    raise
        self.check()

    def close(self):
        """Frees the handle; leaves if that was not done, without waiting."""
        if self._handle is not None:
            lib.gw_group_free(self._handle)
            self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None) is not None and lib is not None:
            self.close()


class Client:
    """A connection to the daemon of this host."""

    def __init__(
        self,
        socket=None,
        connect_timeout=5.0,
        request_timeout=10.0,
        spin_us=0,
        staging_cache_bytes=0,
    ):
        """``socket``: path; None is $GRADWIRE_SOCKET, else /run/gradwire/gradwired.sock. Zeros are
        the library's defaults."""
        self._handle = None
        # As daemon_status() takes it, whatever becomes of the environment.
        self.socket = os.environ.get("GRADWIRE_SOCKET") if socket is None else socket
        self._unfreed = []
        self._dropped = []  # handles of works, and what their ops use
        self._memory_device = _UNKNOWN
        options = _native.OpenOptions(
            struct_bytes=ctypes.sizeof(_native.OpenOptions),
            connect_timeout_ms=milliseconds(connect_timeout, "connect_timeout"),
            request_timeout_ms=milliseconds(request_timeout, "request_timeout"),
            spin_us=integer(spin_us, "spin_us", 0, MAX_U32),
            staging_cache_bytes=integer(staging_cache_bytes, "staging_cache_bytes", 0, MAX_U64),
        )
        handle = ctypes.c_void_p()
        check(lib.gw_open(_encode_path(socket), ctypes.byref(options), ctypes.byref(handle)))
        self._handle = handle

    def _live_handle(self):
        if self._handle is None:
            raise GradwireError(Status.INVALID_ARGUMENT, "the client has been closed")
        return self._handle

    def allocate(self, nbytes):
        """Memory shared with the daemon, zeroed, rounded up to hugepages: the host's, or where the
        daemon is configured so its GPU's (see Memory.device)."""
        return Memory(self, nbytes)

    def memory_device(self):
        """The GPU on which the daemon makes gradient memory, by CUDA's number; None: the host."""
        if self._memory_device is _UNKNOWN:
            self._memory_device = self.allocate(1).device
        return self._memory_device

    def _free_dropped(self):
        dropped, self._dropped = self._dropped, []
        done = ctypes.c_int()
        for handle, keep in dropped:
            lib.gw_test(handle, ctypes.byref(done))
            if done.value:
                lib.gw_work_free(handle)
            else:
                self._dropped.append((handle, keep))

    def _free_unfreed(self):
        handles, self._unfreed = self._unfreed, []
        self._unfreed += [h for h in handles if lib.gw_memory_free(h) != Status.OK]

    def describe(self, **wants):
        """This daemon as other daemons reach it: opaque bytes for the job's rendezvous.
        ``security`` ("off", "authenticate", "encrypt") and ``job_key`` (32 bytes) are what the job
        wants of its packets, as in join(); else $GRADWIRE_SECURITY, $GRADWIRE_JOB_KEY_FILE."""
        info = ctypes.create_string_buffer(_native.RANK_INFO_BYTES)
        wanted = ctypes.byref(_native.describe_options(**wants))
        check(lib.gw_client_describe_for(self._live_handle(), wanted, info, len(info)))
        return info.raw

    def join(
        self, group_id, epoch, rank, rank_infos, member=0, members=1, timeout=30.0, folding_ranks=0,
        transfers_alone=False, **wants
    ):
        """Joins a group, collectively; ``rank_infos``: describe() of every rank, in rank order. So
        many of the last ranks as ``folding_ranks`` says only sum for the others (Group.serve()).
        ``transfers_alone``: it has no ops, and takes next to nothing at its two daemons. ``wants``
        as for describe()."""
        blob = b"".join(rank_infos)
        config = _native.GroupConfig(
            struct_bytes=ctypes.sizeof(_native.GroupConfig),
            epoch=integer(epoch, "epoch", 0, MAX_U32),
            group_id=integer(group_id, "group_id", 0, MAX_U64),
            rank=integer(rank, "rank", 0, MAX_U16),
            nranks=integer(len(rank_infos), "the number of rank_infos", 1, MAX_U16),
            member=integer(member, "member", 0, MAX_U16),
            member_count=integer(members, "members", 1, MAX_U16),
            timeout_ms=milliseconds(timeout),
            folding_ranks=integer(folding_ranks, "folding_ranks", 0, MAX_U16),
            flags=_native.GROUP_TRANSFERS_ALONE if transfers_alone else 0,
            rank_infos=blob,
            rank_infos_bytes=len(blob),
            **_native.wants(**wants),
        )
        handle = ctypes.c_void_p()
        check(lib.gw_group_join(self._live_handle(), ctypes.byref(config), ctypes.byref(handle)))
        return Group(self, handle, config.group_id, config.epoch)

    def join_processes(
        self, group_id, epoch, process, infos, timeout=30.0, folding_infos=(),
        transfers_alone=False, **wants
    ):
        """Joins a group, collectively, as number ``process`` of ``len(infos)`` processes: in any
        order, and any number of them at each daemon. ``infos``: describe() of every process's
        client, in the group's order, the same on all; roots and blocks go by it.
        ``folding_infos``: likewise of daemons that only sum for the others (Group.serve()): whoever
        joins at the i-th of them is process ``len(infos) + i``. The rest is as for join()."""
        blob = b"".join(infos)
        folding = b"".join(folding_infos)
        config = _native.ProcessesConfig(
            struct_bytes=ctypes.sizeof(_native.ProcessesConfig),
            epoch=integer(epoch, "epoch", 0, MAX_U32),
            group_id=integer(group_id, "group_id", 0, MAX_U64),
            process=integer(process, "process", 0, MAX_U32),
            processes=integer(len(infos), "the number of infos", 1, MAX_U16),
            timeout_ms=milliseconds(timeout),
            flags=_native.GROUP_TRANSFERS_ALONE if transfers_alone else 0,
            infos=blob,
            infos_bytes=len(blob),
            folding_infos=folding or None,
            folding_infos_bytes=len(folding),
            **_native.wants(**wants),
        )
        handle = ctypes.c_void_p()
        given = ctypes.byref(config)
        check(lib.gw_group_join_processes(self._live_handle(), given, ctypes.byref(handle)))
        return Group(self, handle, config.group_id, config.epoch)

    def info(self):
        """What the daemon said of itself when the client was opened."""
        return self._read(_native.ClientInfo(), lib.gw_client_get_info)

    def counters(self):
        """Counters since the client was opened: ops, copies and their bytes, sleeps, ..."""
        return self._read(_native.Counters(), lib.gw_client_get_counters)

    def _read(self, struct, function):
        struct.struct_bytes = ctypes.sizeof(struct)
        check(function(self._live_handle(), ctypes.byref(struct)))
        names = [name for name, _ in struct._fields_]
        return {n: getattr(struct, n) for n in names if n not in ("struct_bytes", "reserved")}

    def flush(self):
        """Wakes the daemon for what was posted with more to follow."""
        check(lib.gw_flush(self._live_handle()))

    def completion_fd(self):
        """A descriptor to poll: readable while an op has ended that nobody has been told of."""
        fd = ctypes.c_int()
        check(lib.gw_client_get_completion_fd(self._live_handle(), ctypes.byref(fd)))
        return fd.value

    def close(self):
        """Closes the connection: unfinished ops fail. Views of its memory stay readable."""
        if self._handle is not None:
            lib.gw_close(self._handle)
            self._handle = None
            self._free_dropped()
            self._free_unfreed()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None) is not None and lib is not None:
            self.close()
