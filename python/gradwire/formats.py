# SPDX-License-Identifier: BSD-3-Clause
"""What wire formats make of values (doc/formats.md). Of a call that is Group's ``wire``."""
import numpy

from ._native import GradwireError, Status, check, lib
from .client import _OF_NUMPY, DATATYPES, _Buffer, wire_number


def round_trip(values, wire, out=None, residual=None, dtype=None):
    """What every rank makes of ``values`` that travel in the format ``wire`` ("bf16" or "int8"),
    bit for bit, from a rank of one member. Needs no daemon.

    ``values``: a numpy array or CPU tensor, contiguous, from an op's first element on. ``out``: one
    of its type and size for the result, which may be ``values``; None makes a numpy array.
    ``residual``: an array or tensor of fp32 and that size, for ``values`` less what they decode to,
    0 where that is no finite number: add it to the next step's values (error feedback).
    ``dtype``: "bf16" if numpy's 16-bit integers are that. Returns ``out``."""
    number = wire_number(wire)
    source = _on_host(values, dtype, "values")
    if out is None:
        kind = {name: kind for kind, name in _OF_NUMPY.items()}.get(source.name, "uint16")
        out = numpy.empty(source.count, kind)
        dtype = source.name
    target = _writable(out, dtype, "out", source.name, source.count)
    lost = None
    if residual is not None:
        lost = _writable(residual, None, "residual", "fp32", source.count)
    check(lib.gw_round_trip(number, DATATYPES[source.name], source.count, source.address,
                            target.address, None if lost is None else lost.address))
    return out


def _on_host(array, dtype, name):
    buffer = _Buffer(array, dtype)
    if buffer.on_gpu:
        raise GradwireError(Status.UNSUPPORTED,
                            "%s is on a GPU: copy it to the host first" % name)
    return buffer


def _writable(array, dtype, name, wanted, count):
    buffer = _on_host(array, dtype, name)
    if buffer.name != wanted or buffer.count != count:
        raise ValueError("%s has %d elements of %s: it needs %d of %s"
                         % (name, buffer.count, buffer.name, count, wanted))
    if not buffer.writable:
        raise ValueError("%s is read-only" % name)
    return buffer
