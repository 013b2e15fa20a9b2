# SPDX-License-Identifier: BSD-3-Clause
"""A node: what a daemon is to others. It has an address, describes itself and has groups."""

from . import table, wire
from .group import Group
from .net import require


class Peer:
    """@param network net.Network; address: IPv4 as text; number: makes its incarnation and secret,
    which need not be random here; keys: sealing.Keys, or None; settings: of its table entry, by
    table.PLACES."""

    def __init__(self, network, address, number, keys=None, **settings):
        self.network, self.address, self.keys = network, address, keys
        values = {"incarnation": 0x1000 + number, "secret": 0x51000000 + number,
                  "payload_bytes": 1408, "base_port": 18515, "lanes": 2, "folds": 1024,
                  "transfers": 1, "gathered_kib": 256, "gathered_ranks": 64, **settings}
        self.entry = table.encode_entry(values, address, 24, keys)
        self.groups = {}   # tag -> Group
        self.over = set()  # tags of groups that are closed
        self.late = 0      # packets of those
        # Reason -> packets dropped for it. None: whatever is wrong fails the story.
        self.drops = None
        self.deaf_to = None    # a source port: what daemons send from it is lost
        self.on_packet = None  # called with each packet that was taken
        network.add(self)

    def join(self, group_id, epoch, infos, rank, lies=None, alone=False):
        group = Group(self, group_id, epoch, [table.Entry(info) for info in infos], rank,
                      lies or {}, alone)
        require(infos[rank] == self.entry, "the own entry at the own rank")
        self.groups[group.tag] = group
        return group

    def close(self, group):
        """Forgets it."""
        del self.groups[group.tag]
        self.over.add(group.tag)

    def transmit(self, address, source_port, port, packet):
        self.network.send(self.address, address, source_port, port, packet)

    def receive(self, address, source_port, port, payload):
        """Whatever comes has to be as the page says, or the story fails."""
        if source_port == self.deaf_to and address not in self.network.nodes:
            return
        groups, lane = [], port - table.Entry(self.entry).base_port

        def known(packet):
            if packet.tag in self.over:
                raise wire.Dropped("over")
            if packet.tag not in self.groups:
                raise wire.Dropped("unknown_group")
            groups.append(self.groups[packet.tag])
            return groups[0].known(packet, address, lane)

        try:
            packet = wire.decode(payload, known)
        except wire.Dropped as dropped:
            if str(dropped) == "over":
                self.late += 1
                return
            if self.drops is not None:
                self.drops[str(dropped)] += 1
                return
            require(False, f"{address} sent what is {dropped}: {payload[:96].hex()}, "
                           f"{len(payload)} bytes")
        require(packet.lane == lane, f"lane {packet.lane} at the port of lane {lane}")
        if self.on_packet is not None:
            self.on_packet(packet, address, source_port)
        groups[0].receive(packet)

    def tick(self, now):
        for group in list(self.groups.values()):
            group.tick(now)
