# SPDX-License-Identifier: BSD-3-Clause
"""What a rank does with keys, as doc/security.md says: which tables it takes, the keys of a group's
links, and how packets are sealed and opened, in the page's order of checks."""

import hashlib

from . import security, table, wire

MODES = {"off": security.OFF, "authenticate": security.AUTHENTICATE, "encrypt": security.ENCRYPT}
WINDOW = 8192
WITH_HELLO_KEYS = (wire.HELLO, wire.HELLO_ACK, wire.ABORT)


class Refused(Exception):
    """A table with which no group is formed; the argument says why."""


class Keys:
    """What a daemon has of keys for one user. @param files contents of one or two key files, the
    first first; mode: what its ranks want, as text; number: makes its X25519 key, which need not be
    random here; job: contents of the job's key file, or None; payload: the largest of a sealed
    packet."""

    def __init__(self, files, mode, number, user=0, job=None, payload=1344):
        self.files = [security.FileKeys(data) for data in files]
        self.wanted, self.user, self.payload = MODES[mode], user, payload
        self.private = hashlib.sha256(b"X25519 of peer %d" % number).digest()
        self.public = security.public_of(self.private)
        job_keys = security.FileKeys(job) if job else None
        self.job = job_keys.job if job else security.NO_JOB
        self.job_id = job_keys.id if job else bytes(8)
        self.pairs = {}  # (id of a file, other's public key, its incarnation) -> secret

    def write(self, entry):
        """The entry with what it says of these keys; its checksum is the caller's."""
        return security.write_keys(entry, self.wanted, self.user, self.payload, self.public,
                                   self.files, self.job_id)

    def file_of(self, ids):
        """The first of the own files that is among these ids, or None."""
        return next((file for file in self.files if file.id in ids), None)

    def pair(self, file, incarnation, other):
        """The secret of the pair with another entry's daemon."""
        key = file.id, other.public_key, other.incarnation
        if key not in self.pairs:
            self.pairs[key] = security.pair_secret(file.cluster, self.private, incarnation,
                                                   other.public_key, other.incarnation)
        return self.pairs[key]


def _fits(entry, file):
    return security.entry_mac(entry.data, file) == entry.macs.get(file.id)


def check_table(keys, entries, rank, own):
    """@param own the entry that this daemon made. @return the file of the group's key, or None if
    its mode is off. Raises Refused."""
    def require(condition, why):
        if not condition:
            raise Refused(why)

    mine, mode = entries[rank], table.mode(entries)
    require(mine.data == own, f"the entry of rank {rank} is not what this daemon made")
    for other, entry in enumerate(entries):
        file = keys.file_of(entry.key_ids)
        require(file is None or _fits(entry, file),
                f"the entry of rank {other} does not fit key {file and file.id.hex()}")
    if mode == security.OFF:
        require(keys.job_id == bytes(8), "a job's key in a group whose mode is off")
        return None
    wanting = next(r for r, entry in enumerate(entries) if entry.wanted == mode)
    for other, entry in enumerate(entries):
        require(entry.key_schedule == 1, f"rank {other} has no key, and rank {wanting} wants mode "
                                     f"{mode}")
    common = [key for key in entries[0].key_ids if all(key in e.key_ids for e in entries)]
    require(common, "the ranks have no key in common")
    first = common[0]
    file = keys.file_of([first])
    for other, entry in enumerate(entries):
        require(_fits(entry, file), f"the entry of rank {other} does not fit key {first.hex()}")
        require(entry.job_key_id == mine.job_key_id, f"rank {other} has another key of the job")
        require(any(entry.job_key_id) or entry.user == keys.user,
                f"the entry of rank {other} was made for user {entry.user}")
    for what in "public_key", "incarnation":
        require(len({getattr(e, what) for e in entries}) == len(entries), f"the same {what} twice")
    return file


class GroupKeys:
    """The keys of a group whose mode is not off, at one rank."""

    tag_bytes = security.TAG_BYTES

    @classmethod
    def of(cls, group):
        """@param group group.Group, so far as its table is known. @return None if its mode is off.
        Raises Refused."""
        keys = group.node.keys
        if keys is None:
            if table.mode(group.entries) != security.OFF:
                raise Refused(f"rank {group.rank} has no key, and the group wants more than off")
            return None
        file = check_table(keys, group.entries, group.rank, group.node.entry)
        return cls(keys, file, group) if file else None

    def __init__(self, keys, file, group):
        self.keys, self.file, self.group = keys, file, group
        self.mode = table.mode(group.entries)
        self.flag = security.FLAGS[self.mode]
        self.table_hash = table.table_hash(group.group_id, group.epoch, group.entries, group.alone)

    def link(self, lane, sender, receiver):
        """The keys of one direction between this rank and another."""
        group = self.group
        entries = group.entries
        other = entries[receiver if sender == group.rank else sender]
        root = security.extract(self.keys.job, self.keys.pair(
            self.file, entries[group.rank].incarnation, other))
        context = security.link_context(
            group.group_id, group.epoch, lane, self.mode, (sender, receiver),
            (entries[sender].incarnation, entries[receiver].incarnation))
        return security.LinkKeys(root, context, self.table_hash)

    def seals(self, lane, rank):
        mine = self.group.rank
        return Seals(self.mode, self.link(lane, mine, rank), self.link(lane, rank, mine))


class Window:
    """The numbers that were taken, of the newest ones."""

    def __init__(self):
        self.newest, self.seen = 0, set()

    def check(self, number):
        """Raises Dropped for a number that cannot be taken."""
        if number <= self.newest - WINDOW:
            raise wire.Dropped("replay")
        if number in self.seen:
            raise wire.Dropped("duplicate")

    def take(self, number):
        self.seen.add(number)
        if number > self.newest:
            self.newest = number
            if len(self.seen) > 2 * WINDOW:
                self.seen = {n for n in self.seen if n > number - WINDOW}


class Seals:
    """One end of the pair of links between two ranks on a lane. out, into: security.LinkKeys."""

    def __init__(self, mode, out, into):
        self.mode, self.out, self.into = mode, out, into
        self.window = Window()
        self.generation = 0  # the newest in which a packet was authenticated

    def seal(self, packet):
        """@param packet with its CRCs, that of the payload of the plaintext."""
        packet = bytearray(packet)
        packet[wire.COMMON["flags"][0]] |= security.FLAGS[self.mode]
        number = int.from_bytes(packet[8:16], "big")
        key, iv = self.out.hello if packet[1] in WITH_HELLO_KEYS else self.out.data(number)
        return wire.with_header_crc(bytearray(security.seal(self.mode, key, iv, bytes(packet))))

    def open(self, packet):
        """@param packet a wire.Packet, still sealed. @return its bytes without the tag."""
        number, generation = packet.number, packet.number // security.GENERATION
        in_reach = abs(generation - self.generation) <= 1
        if packet.type in WITH_HELLO_KEYS:
            key, iv = self.into.hello
        elif not in_reach:
            raise wire.Dropped("generation")
        else:
            key, iv = self.into.data(number)
        self.window.check(number)
        opened = security.unseal(self.mode, key, iv, packet.data)
        if opened is None:
            raise wire.Dropped("tag")
        self.window.take(number)
        # A hello's number is of a generation as well, and counts if that has a key.
        if in_reach:
            self.generation = max(self.generation, generation)
        return opened
