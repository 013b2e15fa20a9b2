# SPDX-License-Identifier: BSD-3-Clause
"""gradwire: collectives over Ethernet, through the daemon of this host.

    import gradwire, numpy
    from gradwire import rendezvous

    client = gradwire.Client()                       # the daemon's socket
    store = rendezvous.DirectoryStore("/shared/run-17")
    group = rendezvous.form_group(client, store, rank=0, nranks=2)
    gradients = client.allocate(4 << 20).array("float32")
    group.all_reduce(gradients, op="avg").wait()

A group has ``all_reduce``, ``reduce_scatter``, ``all_gather``, ``broadcast``, ``reduce`` and
``barrier``. Arrays in memory of ``Client.allocate`` are used where they lie;
others are copied (see ``Client.counters``). ``gradwire.torch`` has a communication hook for
PyTorch's DDP; it is imported
only when asked for, so that this package needs no torch.

Every call has a bound; what fails raises ``GradwireError``. Objects may be used from any thread.
After ``os.fork()`` the child cannot use its parent's objects.
"""
from ._native import GradwireError, Status, library_path, version
from .client import Client, Group, Memory, Work, daemon_status
from .formats import round_trip

__all__ = [
    "Client",
    "GradwireError",
    "Group",
    "Memory",
    "Status",
    "Work",
    "daemon_status",
    "library_path",
    "round_trip",
    "version",
]
