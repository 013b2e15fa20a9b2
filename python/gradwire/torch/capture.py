# SPDX-License-Identifier: BSD-3-Clause
"""Streams that are being captured into a CUDA graph: they can have no call."""
from .._cuda import cuda
from .._native import GradwireError, Status


def check_not_captured(device, what, instead):
    """Refuses a call on a stream that is captured: its graph would not have the call in it.
    ``what``: a function, since the text is needed for errors only."""
    if cuda.is_capturing(device):
        raise GradwireError(
            Status.UNSUPPORTED,
            "%s: the current stream is being captured into a CUDA graph, which cannot have a call "
            "of gradwire in it: %s" % (what(), instead),
        )
