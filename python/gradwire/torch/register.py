# SPDX-License-Identifier: BSD-3-Clause
"""How torch.distributed finds the backend: the entry point torch.distributed.backends names
``register()``, and ``import gradwire.torch`` calls it too."""
import torch
import torch.distributed as dist

# The first with a Backend that Python may derive from.
OLDEST = (2, 14)


def version():
    return tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def supported():
    return version() >= OLDEST


def register():
    """Makes ``init_process_group("gradwire")`` possible. Raises ImportError if torch is older than
    2.14."""
    if not supported():
        raise ImportError(
            "torch %s: init_process_group(\"gradwire\") needs torch 2.14 or later. With this one, "
            "DDP's gradients go through gradwire by its communication hook, "
            "gradwire.torch.allreduce_hook, and the process group is Gloo's" % torch.__version__
        )
    if "GRADWIRE" in dist.Backend._plugins:
        return
    from .transfers import GradwireBackend

    def create(options, _):
        return GradwireBackend(
            options.store,
            options.group_rank,
            options.group_size,
            options.timeout.total_seconds(),
            options.group_id,
            options.global_ranks_in_group,
        )

    dist.Backend.register_backend("gradwire", create, extended_api=True, devices=["cpu", "cuda"])
    _mend_is_completed()


def _mend_is_completed():
    """Torch 2.15 hands out the work of a Python backend in a holder that passes on wait() and
    get_future() alone: its is_completed() is false for ever, and who polls never ends. The future
    knows."""
    plain = dist.Work.is_completed

    def is_completed(self):
        if plain(self):
            return True
        try:
            return self.get_future().done()
        except (RuntimeError, NotImplementedError):
            return False

    if not getattr(plain, "by_gradwire", False):
        is_completed.by_gradwire = True
        dist.Work.is_completed = is_completed
