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
    from .buckets import mend_ddp
    from .transfers import GradwireBackend

    def create(options, _):
        return GradwireBackend(
            options.store,
            options.group_rank,
            options.group_size,
            options.timeout.total_seconds(),
            options.group_id,
            options.global_ranks_in_group,
            getattr(options, "enable_reconfigure", False),
        )

    dist.Backend.register_backend("gradwire", create, extended_api=True, devices=["cpu", "cuda"])
    _mend_works()
    _mend_builtin_hook()
    mend_ddp()


# What a work tells beside wait() and get_future().
_TOLD = ("is_completed", "is_success", "exception", "result", "synchronize", "source_rank",
         "_source_rank", "_get_sequence_number")


def _mend_works():
    """Torch 2.15 hands out the work of a Python backend in a holder that passes on wait() and
    get_future() alone: its is_completed() is false for ever, and who polls never ends. Works of
    other backends are asked as before."""
    from .work import behind

    def mend(name):
        plain = getattr(dist.Work, name, None)
        if plain is None or getattr(plain, "by_gradwire", False):
            return

        def ask(self, *arguments):
            work = behind(self) if type(self) is dist.Work else None
            if work is None:
                return plain(self, *arguments)
            return getattr(work, name)(*arguments)

        ask.by_gradwire = True
        ask.__name__, ask.__doc__ = name, plain.__doc__
        setattr(dist.Work, name, ask)

    for name in _TOLD:
        mend(name)


def _mend_builtin_hook():
    """DDP's built-in hook for fp16, in C++, takes a C++ list of tensors from an all-reduce's
    future, and a future of Python's has no way to get one. With gradwire, DDP gets the same hook
    from Python."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    from torch.nn.parallel import DistributedDataParallel

    plain = DistributedDataParallel._register_builtin_comm_hook
    if getattr(plain, "by_gradwire", False):
        return

    def _register_builtin_comm_hook(self, comm_hook_type):
        group = self.process_group
        if comm_hook_type != dist.BuiltinCommHookType.FP16_COMPRESS or not _is_ours(
            group, self.device
        ):
            return plain(self, comm_hook_type)
        self.logger._set_comm_hook_name(str(comm_hook_type))
        dist._register_comm_hook(self.reducer, group, fp16_compress_hook)

    _register_builtin_comm_hook.by_gradwire = True
    DistributedDataParallel._register_builtin_comm_hook = _register_builtin_comm_hook


def _is_ours(group, device):
    try:
        return group._get_backend(device).name() == "gradwire"
    except RuntimeError:
        return False  # the group has no backend for tensors there
