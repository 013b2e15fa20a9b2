# SPDX-License-Identifier: BSD-3-Clause
"""Tensors within guard bytes, of every layout and type, for differ.py."""
import numpy
import torch

GUARD = 0xA5
# What both backends reduce, what both move, and the others.
REDUCED = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8,
           torch.int32, torch.int64, torch.bool]
COMPLEX = [torch.complex64, torch.complex128]
OTHER = [torch.int16, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn,
         torch.complex32]
WHOLE = [torch.int8, torch.uint8, torch.int32, torch.int64, torch.int16]
LAYOUTS = ["contiguous", "transposed", "channels_last", "stepped", "rows"] * 3 + [
    "expanded", "overlapping"]


def strides_of(shape, layout):
    """[dimensions] in elements: how a tensor of this shape lies in memory."""
    order, pitch = list(range(len(shape)))[::-1], 1  # the innermost first
    if layout == "transposed":
        order.reverse()
    elif layout == "channels_last" and len(shape) == 4:
        order = [1, 3, 2, 0]
    strides = [0] * len(shape)
    for place, dim in enumerate(order):
        strides[dim] = pitch * (2 if layout == "stepped" else 1)
        pitch *= max(shape[dim], 1)
        if layout == "rows" and place == 0:
            pitch += 3
    if shape and layout == "expanded":
        strides[0] = 0
    if len(shape) > 1 and layout == "overlapping":
        strides[0] = 1
    return strides


def values(generator, count, dtype, kind):
    """[count] of ``dtype`` as bytes. kind: "exact", whose sums, products and means by 2 and 3 are
    the same in any order; "bits", any; "special", exact ones with NaN, infinities and -0."""
    size = dtype.itemsize
    if kind == "bits" and dtype is not torch.bool:
        return torch.from_numpy(generator.integers(0, 256, count * size, numpy.uint8))
    numbers = torch.from_numpy(generator.integers(-2, 3, count)) * 6
    if dtype is torch.bool:
        return (numbers > 0).view(torch.uint8)
    if dtype.is_complex:
        more = torch.from_numpy(generator.integers(-2, 3, count)) * 6
        numbers = torch.complex(numbers.double(), more.double())
    elif dtype.is_floating_point:
        numbers = numbers.double()
        if kind == "special" and count:
            for value in (float("nan"), float("inf"), -float("inf"), -0.0):
                numbers[int(generator.integers(0, count))] = value
    return numbers.to(dtype).view(torch.uint8) if count else torch.empty(0, dtype=torch.uint8)


class Guarded:
    """tensor: of ``shape`` and ``dtype``, in ``layout``, whose memory, with gaps, was filled with
    ``data`` (bytes), between guards.

    raw:    all its memory, in bytes, guards and all; before: what these were at first
    margin: bytes of each guard
    """

    def __init__(self, shape, dtype, layout, make, skew=0, plainly=False):
        """``make(count)``: that many values' bytes. ``skew``: elements that it is moved by.
        ``plainly``: its elements are put one after the other."""
        strides = strides_of(shape, layout)
        count = torch.Size(shape).numel()
        extent = sum((n - 1) * s for n, s in zip(shape, strides)) + 1 if count else 0
        self.layout, self.width = layout, dtype.itemsize
        self.shape, self.strides = list(shape), strides
        data = make(extent)
        self._lay(extent, data, dtype, count, skew)
        self.tensor = self.typed.as_strided(shape, strides, self.margin // self.width)
        self.dense = self.tensor.is_contiguous()
        if plainly and not self.dense:
            flat = self.tensor.contiguous().view(-1).view(torch.uint8)
            self._lay(count, flat, dtype, count, skew)
            self.tensor = self.typed[self.margin // self.width:][:count].view(shape)

    def _lay(self, extent, data, dtype, count, skew):
        # Gloo may take a view's elements to follow each other in memory.
        self.margin = (max(64, count - extent) + 16 + skew) * self.width
        self.raw = torch.full((2 * self.margin + extent * self.width,), GUARD, dtype=torch.uint8)
        if extent:
            self.raw[self.margin:self.margin + extent * self.width] = data
        self.before = self.raw.clone()
        self.typed = self.raw.view(dtype)

    def guards_intact(self):
        margin = self.margin
        return bool((self.raw[:margin] == GUARD).all() and (self.raw[-margin:] == GUARD).all())

    def untouched(self):
        return torch.equal(self.raw, self.before)

    def with_values(self, flat):
        """[bytes] What its memory would be if only its elements were written, in their order."""
        raw = self.before.clone()
        target = raw.view(self.tensor.dtype).as_strided(
            self.shape, self.strides, self.margin // self.width)
        source = flat.reshape(self.shape)
        if 0 in self.strides and source.numel():
            for place in range(self.shape[0]):  # expanded: the last one stays
                target.narrow(0, place, 1).copy_(source.narrow(0, place, 1))
        else:
            target.copy_(source)
        return raw

    def text(self):
        return "%s%s%s" % (str(self.tensor.dtype).replace("torch.", ""), self.shape,
                           "" if self.dense else " " + self.layout)


def numbers(memory, dtype):
    """[elements] of a floating type as float64, or None if it is another type."""
    if dtype.is_complex:
        dtype = dtype.to_real()
    return memory.view(dtype).double() if dtype.is_floating_point else None


def same_bytes(one, other, dtype, any_nan):
    """Whether two memories are the same. ``any_nan``: one NaN is as good as another."""
    if torch.equal(one, other):
        return True
    if not any_nan or one.numel() != other.numel() or numbers(one, dtype) is None:
        return False
    one, other = numbers(one, dtype), numbers(other, dtype)
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def nan_or_same(right, ours, dtype):
    """Whether ours has other values where it has NaN, and where zeros have another sign, only."""
    right, ours = numbers(right, dtype), numbers(ours, dtype)
    return ours is not None and bool(((right == ours) | ours.isnan()).all())


def first_difference(one, other):
    """Where they differ, for people."""
    if one.numel() != other.numel():
        return "%d and %d bytes" % (one.numel(), other.numel())
    places = (one != other).nonzero().view(-1)
    if not places.numel():
        return "none"
    at = int(places[0])
    return "%d of %d bytes, the first at %d: %s, not %s" % (
        places.numel(), one.numel(), at, other[at:at + 8].tolist(), one[at:at + 8].tolist())
