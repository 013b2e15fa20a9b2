# SPDX-License-Identifier: BSD-3-Clause
"""Wire formats (doc/protocol/formats.md) of the backend's calls and of the DDP hook's buckets: who
asks for one, why an op cannot have it, what was taken, and how much its encoding loses."""
import collections
import contextlib
import logging
import os
import threading

import torch

from .._native import ALL_REDUCE, REDUCE, REDUCE_SCATTER, GradwireError, Status
from ..client import DATATYPES, OPS, WIRES, daemon_status
from ..formats import round_trip

log = logging.getLogger("gradwire.torch")

# Elements that a scale of int8 is for.
_BLOCK = 256
# The bytes of data that a packet needs for one block of int8, with its scale.
_BLOCK_BYTES = _BLOCK + 4
# What is encoded and decoded differs by so much more than half a scale, by roundings of fp32.
_ROUNDINGS = 1 + 2.0**-13
# Half the distance of two neighbors of bf16's denormals.
_BF16_LEAST = 2.0**-134
# From here on bf16 rounds to infinity, and has no bound.
_BF16_MOST = float.fromhex("0x1.fep127")
# How often losses are measured: that costs a pass over the elements.
SAMPLE_EVERY = 100
# What goes missing if torch has no memory for that.
SAMPLE = "a measurement of what the encoding loses"
# The backend measures so many of an op.
_SAMPLE_ELEMENTS = 1 << 18
# From how many bytes on, if GRADWIRE_REDUCE_SCATTER_FORMAT_FROM does not say it.
_SCATTER_FROM = 1 << 20

_SUMS = (ALL_REDUCE, REDUCE, REDUCE_SCATTER)
_DATATYPE_NAMES = {number: name for name, number in DATATYPES.items()}
_REDOP_NAMES = {number: name for name, number in OPS.items()}
_asked = threading.local()


def checked(wire):
    """None for "same" or None, else the name of a format."""
    if wire is not None and (not isinstance(wire, str) or wire not in WIRES):
        raise ValueError("the wire format is %r: it must be None or one of %s"
                         % (wire, ", ".join(WIRES)))
    return None if wire == "same" else wire


@contextlib.contextmanager
def wire_format(wire):
    """Within it, the elements of this thread's sums and averages (all-reduces, reduces and
    reduce-scatters) on the backend "gradwire" travel as "bf16" or "int8", and the results are
    rounded (doc/pytorch.md, "Fewer bytes on the wire"). None: they travel as they are, also where
    GRADWIRE_REDUCE_SCATTER_FORMAT says otherwise. Every process has to do the same."""
    before = getattr(_asked, "wire", None)
    _asked.wire = checked(wire) or "same"
    try:
        yield
    finally:
        _asked.wire = before


def scatter_option():
    """(format, bytes from which on) of reduce-scatters of fp32, by the environment; None: none."""
    name = "GRADWIRE_REDUCE_SCATTER_FORMAT"
    wire = os.environ.get(name) or None
    if wire is not None and wire not in WIRES:
        raise ValueError("environment variable %s is %r: it must be one of %s"
                         % (name, wire, ", ".join(WIRES)))
    text = os.environ.get(name + "_FROM") or str(_SCATTER_FROM)
    if not text.isdecimal():
        raise ValueError("environment variable %s_FROM is %r: it must be a number of bytes"
                         % (name, text))
    return None if checked(wire) is None else (wire, int(text))


def why_not(client, group, wire):
    """None if sums of this group may travel in the format, else why not. By what the daemon says of
    the group, which follows from what all ranks compared: so all processes get the same."""
    if group.nranks == 1:
        return "its group has one rank: nothing travels"
    name = "%016x" % group.group_id
    for told in daemon_status(client.socket)["groups"]:
        if told["group_id"] != name or told["epoch"] != group.epoch:
            continue
        if not told.get("formats"):
            return "its group has no wire formats: %s" % (
                told.get("why_no_formats") or "the daemon is of an older release"
            )
        if wire == "int8" and told["payload_bytes"] < _BLOCK_BYTES:
            return "its group's packets carry %d bytes of data, and a block of int8 has %d" % (
                told["payload_bytes"], _BLOCK_BYTES
            )
        return None
    raise GradwireError(
        Status.NOT_FOUND,
        "the daemon's status has no group %s of epoch %d, of which a call is to travel as %s"
        % (name, group.epoch, wire),
    )


def misfit(wire, datatype, redop):
    """None if elements of this type (as the C interface calls it) and this redop may travel in the
    format, else why not."""
    if redop not in ("sum", "avg"):
        return "redop %s: a wire format is for sum and avg" % redop
    if datatype == "fp32" or datatype == "bf16" and wire == "int8":
        return None
    return "elements of %s: %s is for %s" % (
        datatype, wire, "fp32 and bf16" if wire == "int8" else "fp32"
    )


def encoded_bytes(wire, count):
    if wire == "bf16":
        return 2 * count
    return count + 4 * -(-count // _BLOCK)


def bounds(wire, values):
    """[count] what encoding may lose of each of these fp32; NaN where there is no bound."""
    size = values.abs()
    if wire == "bf16":
        bound = (size * 2.0**-8).clamp_min(_BF16_LEAST)
        return torch.where(size < _BF16_MOST, bound, torch.nan)
    count = values.numel()
    blocks = -(-count // _BLOCK)
    if count != blocks * _BLOCK:
        size = torch.nn.functional.pad(size, (0, blocks * _BLOCK - count))
    scale = (size.view(blocks, _BLOCK).amax(1) / 127).clamp_min(2.0**-126)
    scale = torch.where(scale.isfinite(), scale * (_ROUNDINGS / 2), torch.nan)
    return scale.repeat_interleave(_BLOCK)[:count]


class Tally:
    """What travelled in a format and what did not, of one hook or of the backend. Any thread."""

    def __init__(self):
        self._lock = threading.Lock()
        self._ops, self._bytes, self._sent, self._plain = (collections.Counter() for _ in range(4))
        self._fell_back = collections.Counter()
        self._error = None

    def fell_back(self, what, why):
        """An op is done without ``what`` was asked for: counted, and said once for each reason."""
        said = "without %s: %s" % (what, why)
        with self._lock:
            self._fell_back[said] += 1
            first = self._fell_back[said] == 1
        if first:
            log.warning("gradwire: sums go %s", said)

    def took(self, wire, nbytes, encoded, nranks, passes):
        """An op travels in the format. ``nbytes``: of its input; ``encoded``: of that in the
        format; ``nranks``: that have members; ``passes``: 2 if the result travels in it, too, else
        1."""
        with self._lock:
            number = self._ops[wire]
            self._ops[wire] += 1
            self._bytes[wire] += nbytes
            self._sent[wire] += passes * encoded * (nranks - 1) // nranks
            self._plain[wire] += passes * nbytes * (nranks - 1) // nranks
        return number

    def measured(self, lost, bound):
        """``lost``: what the encoding of an op lost, fp32; ``bound``: bounds() of what was encoded,
        None if that is not known."""
        lost = lost.double().abs()
        error = {"elements": lost.numel(), "largest": lost.max().item(),
                 "rms": lost.square().mean().sqrt().item()}
        if bound is not None:
            bound = bound.to("cpu").double()
            bounded = ~bound.isnan()
            lost, bound = lost[bounded], bound[bounded]
            error["without_bound"] = error["elements"] - lost.numel()
            if lost.numel():
                share = torch.where(lost == 0, 0.0, lost / bound)
                error["largest_bound"] = bound[lost.argmax()].item()
                error["rms_bound"] = bound.square().mean().sqrt().item()
                error["largest_share"] = share.max().item()
                error["rms_share"] = lost.square().mean().sqrt().item() / error["rms_bound"]
        with self._lock:
            before = self._error or {"ops": 0}
            error["ops"] = before["ops"] + 1
            for name in ("largest_share", "rms_share"):
                shares = [e[name] for e in (before, error) if name in e]
                if shares:
                    error[name] = max(shares)
            self._error = error

    def stats(self):
        """``format_ops`` and ``format_bytes`` (of the inputs) by format; ``wire_bytes``, the data
        that each of n ranks with members sends of them by formula ((n - 1) / n of the encoded
        input, twice if the result travels encoded too; with hosts that only sum it is no more),
        and ``wire_bytes_without``, had they gone round the ring as they are;
        ``fell_back``: how many did, by reason. ``encoding_error``, None before the first sample:
        ``largest`` and ``rms`` (root mean square) of what this rank's encoding lost in the last op
        that was measured, of ``elements``; ``largest_bound``, of the element that lost most, and
        ``rms_bound``; ``without_bound``, elements for which there is none; ``largest_share`` and
        ``rms_share`` of the bounds, the greatest of all samples, of which there are ``ops``."""
        with self._lock:
            return {
                "format_ops": dict(self._ops),
                "format_bytes": dict(self._bytes),
                "wire_bytes": dict(self._sent),
                "wire_bytes_without": dict(self._plain),
                "fell_back": dict(self._fell_back),
                "encoding_error": None if self._error is None else dict(self._error),
            }


class GroupFormats:
    """Which of a process group's calls travel in a format."""

    def __init__(self):
        self._scatter = scatter_option()
        self._why_not = {}  # by format

    def asked(self):
        """Whether a format may have been asked for: for calls that shall cost little."""
        return self._scatter is not None or getattr(_asked, "wire", None) is not None

    def of(self, backend, collective, source, datatype, redop, count):
        """The number of the format of an op that is about to be posted. ``count``: as its gw_call
        has it."""
        wire = getattr(_asked, "wire", None)
        if collective not in _SUMS or wire == "same" or count == 0:
            return 0
        nbytes = source.numel() * source.element_size()
        if wire is None:
            if self._scatter is None or collective != REDUCE_SCATTER:
                return 0
            wire, least = self._scatter
            if datatype != DATATYPES["fp32"] or nbytes < least:
                return 0
        why = misfit(wire, _DATATYPE_NAMES[datatype], _REDOP_NAMES[redop])
        if why is None:
            why = self._why_not_in(backend, wire)
        if why is not None:
            backend.engine.tally.fell_back("format " + wire, why)
            return 0
        group, tally = backend.channel.group, backend.engine.tally
        blocks = source.numel() // count  # of a reduce-scatter, which are encoded apart
        if tally.took(wire, nbytes, blocks * encoded_bytes(wire, count), group.nranks,
                      2 if collective == ALL_REDUCE else 1) % SAMPLE_EVERY == 0:
            _measure(tally, wire, source, min(count, _SAMPLE_ELEMENTS), group)
        return WIRES[wire]

    def _why_not_in(self, backend, wire):
        group = backend.channel.group
        if backend._size == 1:
            return "its group has one process: nothing travels"
        if group is None:
            return "its group has ended"
        if wire not in self._why_not:
            try:
                self._why_not[wire] = why_not(backend.engine.client, group, wire)
            except BaseException as error:
                # The others know, and post: they shall not wait for this process.
                group.abort("rank %d could not ask its daemon whether sums may travel as %s: %s"
                            % (group.rank, wire, error))
                raise
        return self._why_not[wire]


def _measure(tally, wire, source, count, group):
    """What the encoding of the first elements loses, if this process has them and what they are
    encoded from, which is so of the only member of a rank."""
    if group.members != 1 or not source.is_cpu:
        return
    try:
        values = source.detach().reshape(-1)[:count]
        lost = torch.empty(count, dtype=torch.float32)
        round_trip(values, wire, out=torch.empty_like(values), residual=lost)
        tally.measured(lost, bounds(wire, values.float()))
    except (RuntimeError, MemoryError) as error:  # torch lacks memory for it
        tally.fell_back(SAMPLE, str(error))
