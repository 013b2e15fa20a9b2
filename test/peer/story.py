# SPDX-License-Identifier: BSD-3-Clause
"""What the peer's stories share: groups of daemons' clients and peers, in one thread. Daemons are
spoken to through their own client library; nothing of it makes or reads a packet."""

import os
import sys
import threading

import gradwire
import numpy as np

from . import sums, table, wire
from .checksums import crc32c
from .net import Network, require
from .peer import Peer
from .sealing import Keys, Refused

WAIT_S = 60
METHODS = {wire.ALL_REDUCE: "all_reduce", wire.REDUCE: "reduce", wire.BROADCAST: "broadcast",
           wire.ALL_GATHER: "all_gather", wire.REDUCE_SCATTER: "reduce_scatter"}


def inputs_of(count, datatype, rank, salt):
    """Numbers that differ in every element, rank and op, the same in every run. Floats are
    fractions whose sums are rounded."""
    i = np.arange(count, dtype=np.int64)
    mixed = (i * 2654435761 + rank * 40503 + salt * 69069) % 65521
    if datatype == "bf16":
        return ((mixed.astype("f4") / 1021 - 30).view("u4") >> 16).astype("<u2")
    if datatype in ("fp32", "fp64", "fp16"):
        return (mixed / 1021 - 30).astype(sums.KINDS[datatype])
    return (mixed - 32000).astype(sums.KINDS[datatype])


class Stage:
    """The daemons by their control sockets, and a device on whose network peers can live. If the
    environment has PEER_KEY_FILE, peers have this key, and want $GRADWIRE_SECURITY as clients of
    daemons do."""

    def __init__(self, device, sockets):
        self.network, self.sockets = Network(device), sockets
        self.mode, self.key = os.environ.get("GRADWIRE_SECURITY", "off"), None
        if "PEER_KEY_FILE" in os.environ:
            with open(os.environ["PEER_KEY_FILE"], "rb") as file:
                self.key = file.read()
        self.clients = [gradwire.Client(socket) for socket in sockets]
        self.features = table.Entry(self.clients[0].describe()).features
        self.peers = []
        self.kinds = set()  # of packets that daemons sent

    def keys(self, mode=None, files=None, **more):
        """What the next peer has of keys, as sealing.Keys takes it; by default what all have."""
        return Keys(files or [self.key], mode or self.mode, len(self.peers) + 1, os.getuid(),
                    **{"payload": 1408, **more})

    def peer(self, **settings):
        """One more, with an address of its own; settings as peer.Peer has them."""
        number = len(self.peers) + 1
        peer = Peer(self.network, f"10.78.0.{10 + number}", number,
                    **{"features": self.features, "lanes": 1,
                       "keys": self.keys() if self.key else None, **settings})
        peer.on_packet = self._note
        self.peers.append(peer)
        return peer

    def _note(self, packet, address, _):
        if address not in self.network.nodes:
            self.kinds.add(packet.type)

    def meet(self, *members, **options):
        return Meeting(self.network, members, **options)

    def drops(self, daemon=0):
        """What a daemon dropped on its lanes, by reason."""
        total = {}
        for lane in gradwire.daemon_status(self.sockets[daemon])["lanes"]:
            for counters in lane["counters"]["drops"], lane["transport"]["drops"]:
                for name, count in counters.items():
                    total[name] = total.get(name, 0) + count
        return total

    def counter(self, name, daemon=0):
        """One of what all groups counted there."""
        return sum(lane["transport"][name]
                   for lane in gradwire.daemon_status(self.sockets[daemon])["lanes"])


class Meeting:
    """A group of clients of daemons and of peers. members[rank] is a gradwire.Client or a
    Peer; lies: fields of the peers' hellos that are not so, with which no group forms; wants: what
    clients say of security, if not what their environment does; refused: no rank takes the
    table."""

    # Ids of one program are not another's: a daemon refuses an epoch that it has seen.
    next_group = crc32c((os.path.basename(sys.argv[0]) + os.environ.get("GRADWIRE_SECURITY", "")
                         ).encode()) << 32

    def __init__(self, network, members, lies=None, wants=None, refused=False, alone=False):
        self.network, self.members, self.wants = network, members, wants or {}
        self.alone = alone
        self.infos = [member.entry if isinstance(member, Peer) else member.describe(**self.wants)
                      for member in members]
        Meeting.next_group += 1
        self.group_id, self.epoch = Meeting.next_group, 1
        self.groups = [None] * len(members)  # gradwire.Group or group.Group
        self.errors = []
        self.refusals = []  # of peers
        self.posted = 0
        threads = [threading.Thread(target=self._join, args=(rank,))
                   for rank, member in enumerate(members) if not isinstance(member, Peer)]
        for thread in threads:
            thread.start()
        for rank, member in enumerate(members):
            if isinstance(member, Peer):
                self._join_peer(rank, lies)
        if refused:
            network.run_until(lambda: not any(thread.is_alive() for thread in threads),
                              "the clients' joins end", WAIT_S)
            return
        network.run_until(lambda: not any(thread.is_alive() for thread in threads)
                          and (self.errors or self._formed()), "the group forms", WAIT_S)
        require(lies or not self.errors + self.refusals,
                f"the group forms: {self.errors + self.refusals}")

    def _join(self, rank):
        try:
            self.groups[rank] = self.members[rank].join(self.group_id, self.epoch, rank, self.infos,
                                                        timeout=30,
                                                        transfers_alone=self.alone, **self.wants)
        except gradwire.GradwireError as error:
            self.errors.append(f"rank {rank}: {error}")

    def _join_peer(self, rank, lies):
        try:
            self.groups[rank] = self.members[rank].join(self.group_id, self.epoch, self.infos, rank,
                                                        lies, self.alone)
        except Refused as why:
            self.refusals.append(f"rank {rank}: {why}")

    def peers(self):
        return [group for group, member in zip(self.groups, self.members)
                if isinstance(member, Peer) and group is not None]

    def _formed(self):
        return all(lane.formed for group in self.peers() for lane in group.lanes)

    def run(self, call, inputs, poll=True):
        """All ranks post it. @return what each rank got; raises what a client is told."""
        works, outputs = self.post(call, inputs)
        if poll:
            self.network.run_until(lambda: self.all_done(works), f"an op is done: {vars(call)}",
                                   WAIT_S)
        return outputs()

    def post(self, call, inputs):
        works, clients_outputs = [], {}
        for rank, group in enumerate(self.groups):
            if isinstance(self.members[rank], Peer):
                works.append(group.post(call, inputs[rank]))
            else:
                clients_outputs[rank] = self.post_client(call, inputs, rank, works)

        def outputs():
            return [clients_outputs[rank] if rank in clients_outputs else work.output
                    for rank, work in enumerate(works)]
        return works, outputs

    def post_client(self, call, inputs, rank, works):
        """@return the output of a daemon's client, whose work is added to works."""
        group, kind = self.groups[rank], np.dtype(sums.KINDS[call.datatype])
        if call.collective == wire.BARRIER:
            works.append(group.barrier(tag=call.tag))
            return None
        given = inputs[rank]
        blocks = len(self.groups) if call.collective == wire.ALL_GATHER else 1
        out = np.full(call.count * blocks * kind.itemsize, 0xA5, "u1").view(kind)
        more = {"tag": call.tag, "dtype": call.datatype}
        method = getattr(group, METHODS[call.collective])
        if call.collective == wire.BROADCAST:
            if given is not None:
                out[:] = given
            works.append(method(out, root=call.root, **more))
            return out
        if call.root is not None:
            more["root"] = call.root
        if call.collective != wire.ALL_GATHER:
            more["op"] = call.redop
        works.append(method(given, out=out, **more))
        return out

    def all_done(self, works):
        return all(group.is_done(work) if isinstance(member, Peer) else work.is_done()
                   for group, member, work in zip(self.groups, self.members, works))

    def check(self, call, what=""):
        """Runs a call with inputs of its own and compares every bit."""
        self.posted += 1
        inputs = self.make_inputs(call)
        expected = sums.of_call(call, inputs)
        got = self.run(call, inputs)
        compare(call, expected, got, what)

    def make_inputs(self, call):
        nranks = len(self.groups)
        count = call.count * (nranks if call.collective == wire.REDUCE_SCATTER else 1)
        return [inputs_of(count, call.datatype, rank, self.posted)
                if call.collective != wire.BARRIER and not (
                    call.collective == wire.BROADCAST and call.root != rank) else None
                for rank in range(nranks)]

    def leave(self):
        """All ranks leave; what the clients are told is raised."""
        groups = [group for group, member in zip(self.groups, self.members)
                  if not isinstance(member, Peer)]
        errors = []

        def leave_one(group):
            try:
                group.leave()
                group.close()
            except gradwire.GradwireError as error:
                errors.append(str(error))

        threads = [threading.Thread(target=leave_one, args=(group,)) for group in groups]
        for thread in threads:
            thread.start()
        for group in self.peers():
            group.leave()
        self.network.run_until(lambda: not any(thread.is_alive() for thread in threads) and (
            errors or all(group.has_left() for group in self.peers())), "all ranks leave", WAIT_S)
        require(not errors, f"clients leave: {errors}")
        self.close()

    def client_errors(self):
        """@return what each client is told of the group's end, which it waits for; they are closed
        then."""
        errors = {}

        def all_told():
            for group, member in zip(self.groups, self.members):
                if not isinstance(member, Peer) and group not in errors:
                    try:
                        group.check()
                        return False
                    except gradwire.GradwireError as error:
                        errors[group] = str(error)
            return True

        self.network.run_until(all_told, "clients are told of the abort", WAIT_S)
        for group in errors:
            group.close()
        return list(errors.values())

    def close(self):
        for group in self.peers():
            group.node.close(group)


def compare(call, expected, got, what):
    for rank, (want, have) in enumerate(zip(expected, got)):
        if want is None or call.count == 0:
            continue
        wrong = np.nonzero(want.view("u1") != have.view("u1"))[0]
        require(not len(wrong), f"{what} {vars(call)}: rank {rank} differs in {len(wrong)} bytes, "
                f"first {wrong[:1]}")

