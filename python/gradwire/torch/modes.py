# SPDX-License-Identifier: BSD-3-Clause
"""Torch's modes belong to threads. What the backend copies for a call is copied as the thread had
it that made the call, whichever thread finds out that the op has ended: the user's in wait(), where
other modes may hold by then, or the engine's, which has none."""
import contextlib

import torch


class Modes:
    """Of a call: ``tensors`` are those that are written to."""

    __slots__ = ("inference",)

    def __init__(self, tensors):
        # Tensors that were made in inference mode can be written in that mode alone.
        self.inference = torch.is_inference_mode_enabled() or any(
            tensor.is_inference() for tensor in tensors
        )

    @contextlib.contextmanager
    def hold(self):
        """No graph of autograd gets these copies, and no dispatch mode of the user's sees them."""
        with torch.inference_mode(self.inference), torch.no_grad():
            # It holds from here on, not from its __enter__(): made before the others it would be
            # part of what they put back at their end, for good.
            with torch._C._DisableTorchDispatch():
                yield


def writing(tensors):
    """A context to copy to these at once, in the thread that makes the call."""
    return Modes(tensors).hold()
