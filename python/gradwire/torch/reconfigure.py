# SPDX-License-Identifier: BSD-3-Clause
"""New members for a process group that stays what it is: torch's reconfigure API for the backend.

A process tells what others need to reach it in a handle, and whoever is given the handles of all
forms the group of them. Nothing else is needed: no store, and none of the old members. What finds
out who the members are is in rounds.py, or the caller's own.
"""
import base64
import binascii
import hashlib
import json
import secrets

import torch
import torch.distributed as dist

from .._native import GradwireError, Status
from . import seat
from .engine import Engine
from .formation import join
from .wire import GroupFormats
from .work import GradwireWork, seconds

_MARK = "gradwire:"


def _refuse(backend, text):
    return GradwireError(
        Status.INVALID_ARGUMENT, "reconfigure of process group %s: %s" % (backend.group_name, text)
    )


def _read(backend, handle):
    """What a handle says."""
    try:
        if not handle.startswith(_MARK):
            raise ValueError
        said = json.loads(handle[len(_MARK):])
        said["info"] = base64.b64decode(said["info"])
        if {"process", "turn", "rank", "groups"} <= said.keys():
            return said
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        pass
    raise _refuse(backend, "%r is no handle of the backend gradwire" % handle[:80])


def _in_order(handles):
    """A set's: the members of the group that was keep their order, and the others come after."""
    def place(said):
        return (said["rank"] is None, said["rank"] or 0, said["process"])

    return sorted(handles, key=place)


class Reconfigures:
    """What GradwireBackend has of it. ``_turn``: how often its members changed."""

    def _start_turns(self, waits):
        self._process = secrets.token_hex(16)
        self._turn = 0
        self._used = set()  # uuids
        self._formed = not waits
        # For rounds.py: what made the members who they are, how many of them, from rank 0 on, have
        # what is to be kept, and whether this process has nothing of it yet.
        self.generation = None if waits else "init"
        self.keepers = self._size
        self.fresh = waits

    @property
    def supports_reconfigure(self):
        return seat.can_move()

    def _check_formed(self):
        if not self._formed:
            raise GradwireError(
                Status.INVALID_ARGUMENT,
                "process group %s has no members: %s. Call reconfigure() or "
                "gradwire.torch.regroup() first"
                % (self.group_name, "its last reconfigure failed" if self._turn else
                   "it was made with enable_reconfigure=True"),
            )

    def get_reconfigure_handle(self):
        """Of this process as it is now: after a reconfigure() it has another one. It has the secret
        by which daemons know each other: for members alone, as is the job's store."""
        self._revive()
        return _MARK + json.dumps({
            "process": self._process,
            "turn": self._turn,
            "rank": self._rank if self._formed else None,
            "groups": dist.distributed_c10d._world.group_count,
            "info": base64.b64encode(self.engine.client.describe()).decode(),
        })

    def _revive(self):
        """A group that was aborted may get new members all the same."""
        if self.engine is None:
            self.engine = Engine.acquire()
            self._keep_alive()
            self._make_channels()

    def reconfigure(self, opts):
        """From now on the group has the members whose handles these are. Collective among them.
        What is unfinished ends with an error. Returns when the group is formed; raises what became
        of it, and then calls are refused until another reconfigure()."""
        self._check_can_move()
        members = self._members(opts)
        own = [said["process"] for said in members].index(self._process)
        self._used.add(opts.uuid)
        timeout_s = min(seconds(opts.timeout, self.timeout_s), 3600.0)
        self._revive()
        engine = self.engine
        self._formed = False
        self._turn += 1
        engine.close_channels(self._channels())
        self._make_channels()
        self._members_are(own, len(members), max(said["groups"] for said in members))
        if len(members) > 1:
            self._open(*join(
                engine.client, _group_id(opts.uuid, members), own,
                [said["info"] for said in members], timeout_s,
                "reconfigure %d of process group %s" % (opts.uuid, self.group_name),
                self.global_ranks,
            ))
        self._formed = True
        self.generation, self.fresh, self.keepers = "uuid %d" % opts.uuid, False, self._size
        work = GradwireWork(engine, lambda: "reconfigure of process group %s" % self.group_name,
                            [], timeout_s)
        work.seal()
        return work

    def _check_can_move(self):
        if not seat.can_move():
            raise GradwireError(
                Status.UNSUPPORTED,
                "reconfigure of process group %s: torch %s does not tell where it keeps a "
                "backend's rank and size; use shrink_group(), or make the group anew"
                % (self.group_name, torch.__version__),
            )

    def _members(self, opts):
        """[members] what their handles say, in the order of their ranks."""
        if opts.hints:
            raise _refuse(self, "it knows no hint %s" % ", ".join(sorted(opts.hints)))
        if opts.uuid in self._used:
            raise _refuse(self, "uuid %d was used before: pass another one" % opts.uuid)
        members = [_read(self, handle) for handle in opts.handles]
        if isinstance(opts.handles, (set, frozenset)):
            members = _in_order(members)
        processes = [said["process"] for said in members]
        if len(set(processes)) != len(processes):
            raise _refuse(self, "two of the %d handles are of one process" % len(processes))
        if self._process not in processes:
            raise _refuse(self, "the handle of this process is not among the %d that it was given"
                          % len(processes))
        if members[processes.index(self._process)]["turn"] != self._turn:
            raise _refuse(self, "the handle of this process is older than its last reconfigure: "
                          "ask for another one")
        return members

    def _members_are(self, rank, size, group_count):
        """This process is ``rank`` of ``size`` now, for torch and for us."""
        seat.move(self, rank, size)
        self._rank, self._size = rank, size
        self.global_ranks = list(range(size))
        self._calls = {}
        self._formats = GroupFormats()
        self._sequence = 0
        self._coalesced = None
        # Torch writes down once which processes a group has, and numbers groups by how many a
        # process has made: both have to be the same on all members.
        world = dist.distributed_c10d._world
        for group in list(world.pg_group_ranks):
            if self._is_of(group):
                world.pg_group_ranks[group] = {number: number for number in range(size)}
                if group is world.default_pg:
                    world.group_count = max(world.group_count, group_count)

    def _is_of(self, group):
        try:
            return any(group._get_backend(device) is self for device in group._device_types)
        except (RuntimeError, AttributeError):
            return False


def _group_id(uuid, members):
    """The same on all members, and no other group's: each handle has a random number."""
    digest = hashlib.sha256(b"%d" % uuid)
    for said in members:
        digest.update(("%s %d" % (said["process"], said["turn"])).encode())
    return int.from_bytes(digest.digest()[:8], "little")
