# SPDX-License-Identifier: BSD-3-Clause
"""What the package uses of CUDA, by way of torch, in one place: streams, and tensors that lie in
memory of a GPU. Tests have another of the kind, for machines without one."""
import sys


class CudaView:
    """Bytes of a GPU, for whoever takes a __cuda_array_interface__; keeps their owner alive."""

    def __init__(self, owner, address, nbytes):
        self.owner = owner
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "stream": None,  # nothing is to be waited for: the daemon's part is over
        }


class TorchCuda:
    """torch.cuda, as far as it is needed."""

    @staticmethod
    def holds(tensor):
        """Whether the tensor is on a GPU."""
        return tensor.device.type == "cuda"

    @staticmethod
    def view(view, device, dtype, count, offset):
        """A tensor on the bytes of a CudaView."""
        import torch

        size = torch.empty(0, dtype=dtype).element_size()
        raw = torch.as_tensor(view, device="cuda:%d" % device)
        return raw[offset : offset + count * size].view(dtype)

    @staticmethod
    def current_stream(device):
        import torch

        return torch.cuda.current_stream(device)

    @staticmethod
    def is_capturing(device):
        """Whether the current stream is being captured into a CUDA graph."""
        import torch

        with torch.cuda.device(device):
            return torch.cuda.is_current_stream_capturing()

    @staticmethod
    def new_stream(device):
        import torch

        return torch.cuda.Stream(device)

    @staticmethod
    def using(stream):
        """A context in which torch puts its work on ``stream``."""
        import torch

        return torch.cuda.stream(stream)

    @staticmethod
    def device_of(tensor):
        return tensor.device

    @staticmethod
    def index_of(tensor):
        return tensor.device.index

    @staticmethod
    def keep(tensor, stream):
        """The tensor's memory is not given to others before ``stream`` is through with it."""
        tensor.record_stream(stream)

    @staticmethod
    def future(device):
        """A future whose waiters' streams wait for the streams that its value was made on."""
        import torch

        return torch.futures.Future(devices=[device])

    @staticmethod
    def enter(device):
        """The calling thread is one for this device. Torch puts back what was current before, and
        in a new thread that is GPU 0: it would get a context of this process."""
        import torch

        torch.cuda.set_device(device)


cuda = TorchCuda()


def handle_of(stream):
    """CUDA's own handle of a stream: torch's, cupy's, or an integer already."""
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    return int(stream)


def is_torch(value):
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)
