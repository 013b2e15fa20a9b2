# SPDX-License-Identifier: BSD-3-Clause
"""What a rank's tensor holds, and what the sum of all must be: computed in parts, on the tensor's
device, so that it costs little memory beside it."""

import torch

MODULUS = 1021  # whole and small: sums are exact in whatever order
PART = 1 << 20


def _parts(tensor):
    """Each part of the tensor, and the indexes of its elements."""
    for start in range(0, tensor.numel(), PART):
        part = tensor[start : start + PART]
        yield part, torch.arange(start, start + part.numel(), device=tensor.device)


def fill(tensor, rank):
    for part, index in _parts(tensor):
        part.copy_((index * 7919 + rank * 40503) % MODULUS)


def count_wrong(tensor, ranks, start=0):
    """Elements that differ from the sum of what `ranks` filled in, from element `start` on."""
    wrong = 0
    for part, index in _parts(tensor):
        right = sum(((index + start) * 7919 + r * 40503) % MODULUS for r in ranks)
        wrong += int((part != right.to(part.dtype)).sum())
    return wrong
