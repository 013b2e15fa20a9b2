# SPDX-License-Identifier: BSD-3-Clause
"""gradwire for PyTorch.

    torch.distributed.init_process_group("gradwire")       # torch 2.14 or later

    GRADWIRE_SOCKET   the daemon of this host; /run/gradwire/gradwired.sock if it is not set
    GRADWIRE_REDUCE_SCATTER_FORMAT, GRADWIRE_REDUCE_SCATTER_FORMAT_FROM
                      "bf16" or "int8": how the elements of fp32 reduce-scatters travel, from so
                      many bytes of input on, 1 MiB if it is not set

The backend of torch.distributed, for tensors on the CPU and on CUDA devices; doc/pytorch.md says
what it does. Where the package is installed torch finds it by itself; else
``import gradwire.torch`` registers it.
``stats()`` tells what was done, what was copied, and which slower ways were taken.

For an older torch there is a communication hook for DDP: see ``gradwire.torch.hook``.
"""
from .hook import GradwireState, Shrunk, allreduce_hook
from .register import register, supported
from .wire import wire_format

__all__ = ["GradwireState", "Shrunk", "allreduce_hook", "gradient_buckets", "group_error",
           "register", "regroup", "stats", "waiting", "wire_format"]


def gradient_buckets():
    """A context manager: see gradient_buckets() in gradwire/torch/buckets.py. Needs torch 2.14."""
    from .buckets import gradient_buckets as made

    return made()


def regroup(group=None, **how):
    """Gives a process group new members: those that are left, and newcomers. See regroup() in
    gradwire/torch/rounds.py. Needs torch 2.15."""
    from . import rounds

    return rounds.regroup(group, **how)


def group_error(group=None):
    """The GradwireError that has ended a process group, None if it is well."""
    from . import rounds

    return rounds.group_error(group)


def waiting(group=None, store=None):
    """How many processes have come to the next regroup()."""
    from . import rounds

    return rounds.waiting(group, store)


def stats():
    """Of all of this process's groups, since the first was made: ``ops`` of the C interface that
    were posted, ``failed`` ones; ``copies`` and ``copied_bytes`` made by the backend to put
    elements in order; ``library_copies`` and ``library_copied_bytes`` into and out of gradient
    memory, of tensors that do not lie there; ``slower``: how often each slower way was taken; what
    travelled in a wire format, as Tally.stats() in gradwire/torch/wire.py says; ``extension``:
    "used: PATH" or "not used: WHY" of the C++ extension; ``buckets`` and ``bucket_bytes`` of
    gradient memory that buckets of DDP have now. Empty without a group."""
    from .engine import Engine
    from .extension import said

    engine = Engine.current()
    if engine is None:
        return {}
    library = engine.client.counters()
    with engine.lock:
        counts = dict(engine.counts)
        counts["ops"] = engine.ops
        slower = dict(engine.slower)
    made = {name: counts.get(name, 0) for name in ("ops", "failed", "copies", "copied_bytes")}
    made["library_copies"] = library["copies"]
    made["library_copied_bytes"] = library["copied_bytes"]
    made["slower"] = slower
    made["extension"] = said()
    made["buckets"], made["bucket_bytes"] = (0, 0) if engine.pool is None else engine.pool.lent()
    made.update(engine.tally.stats())
    return made


if supported():
    register()
