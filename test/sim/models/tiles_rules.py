#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A model of the rules of doc/protocol/tiles.md, small enough to visit every state: two or three
ranks that post ops in any depth, at any time, over links that lose, repeat, delay and reorder. In
every state it must hold that a result is freed only when all ranks have it, and that nobody makes a
part from memory that a result was written over or that is the client's again. From every state the
end must be reachable: all ops done, all scratch free, and ranks gone if the case lets them leave.
Rules left out on purpose show that the check finds their want.

tiles.py has the cases, and leaves each rule out; tiles_words.py has the words that end an op.

A tile has one chunk. Pulls, answers that an op is not posted, parts and results are packets: each
arrives at once, is lost, or is late; one that is late arrives whenever it likes, as often as it
likes. All other words only raise what their receiver knows, so one that is late tells no more than
one that came at once: they arrive in the step that sends them, or are lost. Nobody's clock is
modelled: whatever may be repeated after a time may be repeated at any time."""

from collections import namedtuple

from states import Wrong, check
from tiles_words import IDLE, PART, PULL, PULL_RESULT, RESULT, Words

# all-reduce, reduce-scatter, all-gather. tiles: {owner: how many}.
Op = namedtuple("Op", "kind tiles")
REDUCE, SCATTER, GATHER = "all-reduce", "reduce-scatter", "all-gather"
# members: of the nodes those that have any: they post, give parts and get results. depth: {rank:
# ops that it posts before the first of them is done}; places: for parts, results: an owner's;
# turns, window: what a node pulls at a time; late: packets that are late at a time; encoded:
# results lie in scratch at every owner (else one that has members serves them from its output);
# leaves: ranks leave at the end; begun: all have posted when it starts; slots: places for ops that
# have entered on a node.
Case = namedtuple("Case", "members ops depth places results turns window late encoded leaves "
                  "begun slots", defaults=({}, 1, 1, 1, 1, 1, True, False, False, 9))
# What is left out; see WRONG.
Rules = namedtuple("Rules", "keeps_turn any_order keeps_window late_parts frees_first tells_once "
                   "never_posted until_pulled not_sticky leaves_early answers_call last_all "
                   "fears_leaving", defaults=(False,) * 13)
# Sets of bits. Of (op, rank): posted. Of (op, owner): entered, at owners without members. Of (op,
# owner, rank): call (the owner keeps one), asked (before the rank had posted), heard (that it has
# posted), idle (it said that it has not), knows (the rank, that the owner has entered), over (the
# rank, that the owner knows what it has). Of (op, owner, tile): started, folded. Of (op, owner,
# rank, tile), parts: pulled, loading (at the rank), got; results: done (the rank knows that
# it is folded), told (it was said), pulling, serving, had, have (the owner knows that it is had),
# said (the rank said so once, if that is all that it does). Of (op, owner, rank): gone (the owner
# heard `all`). Of (rank, owner): turn. Of ranks: left. late: packets.
State = namedtuple("State", "posted entered call asked heard idle knows over started folded pulled "
                   "loading got done told pulling serving had have said gone turn left late")


def bits(mask):
    while mask:
        low = mask & -mask
        yield low
        mask ^= low


class Model(Words):
    def __init__(self, case, rules=Rules()):
        self.case, self.rules = case, rules
        self.members = case.members
        self.owners = sorted({o for op in case.ops for o in op.tiles})
        self.pairs, self.tiles, self.cells, self.turns = {}, {}, {}, {}
        self.names = {}  # by the bit of a cell, and of a (op, owner, rank)
        for k, op in enumerate(case.ops):
            for o, count in op.tiles.items():
                for t in range(count):
                    self.tiles[k, o, t] = 1 << len(self.tiles)
                for r in self.members:
                    self.pairs[k, o, r] = 1 << len(self.pairs)
                    for t in range(count):
                        self.cells[k, o, r, t] = 1 << len(self.cells)
        for r in self.members:
            for o in self.owners:
                self.turns[r, o] = 1 << len(self.turns)
        self.of_cell = {bit: name for name, bit in self.cells.items()}
        self.of_pair = {bit: name for name, bit in self.pairs.items()}
        self.all = (1 << len(self.cells)) - 1
        self.all_tiles = (1 << len(self.tiles)) - 1
        self.own = self.where(lambda k, o, r, t: o == r)
        self.scatter = self.where(lambda k, o, r, t: case.ops[k].kind == SCATTER)
        self.reduced = self.where(lambda k, o, r, t: case.ops[k].kind == REDUCE)
        self.of_owner = {(k, o): self.where(lambda a, b, r, t: (a, b) == (k, o))
                         for k, op in enumerate(case.ops) for o in op.tiles}
        self.of_three = {n: self.where(lambda a, b, r, t: (a, b, r) == n) for n in self.pairs}
        self.of_tile = {n: self.where(lambda a, b, r, t: (a, b, t) == n) for n in self.tiles}
        self.of_rank = {(k, r): self.where(lambda a, o, b, t: (a, b) == (k, r))
                        for k in range(len(case.ops)) for r in self.members}
        self.of_turn = {(r, o): self.where(lambda k, a, b, t: (a, b) == (o, r))
                        for r, o in self.turns}
        self.parts_of = {o: self.where(lambda k, a, r, t: a == o != r) for o in self.owners}
        self.results_of = {r: self.where(lambda k, o, a, t: a == r != o) for r in self.members}
        self.kept = self.where(lambda k, o, r, t: case.ops[k].kind == REDUCE and
                               (case.encoded or o not in self.members))
        self.cells_of_turn = [(self.turns[n], cells) for n, cells in self.of_turn.items()]
        self.cells_of_pair = [(self.pairs[n], cells) for n, cells in self.of_three.items()]
        self.others = sum(b for (_, o, r), b in self.pairs.items() if o != r)
        self.others_of = {(k, o): sum(b for (j, a, r), b in self.pairs.items()
                                      if (j, a) == (k, o) and r != o) for k, o in self.of_owner}
        self.told_pairs = sum(b for (_, o, _), b in self.pairs.items() if o not in case.members)
        self.post_bit = {(k, r): 1 << i for i, (k, r) in enumerate(sorted(self.of_rank))}
        self.all_posted = (1 << len(self.post_bit)) - 1

    def where(self, fits):
        return sum(bit for name, bit in self.cells.items() if fits(*name))

    def start(self):
        s = State(*[0] * len(State._fields))
        if not self.case.begun:
            return s
        entered = sum(1 << (k * 8 + o) for k, op in enumerate(self.case.ops) for o in op.tiles)
        return s._replace(posted=self.all_posted, entered=entered, knows=self.told_pairs)

    # What is so in a state.
    def entered(self, s, k, o):
        if o in self.members:
            return bool(s.posted & self.post_bit[k, o])
        return bool(s.entered >> (k * 8 + o) & 1)

    def is_done(self, s, k, r):
        """Whether the client of rank r gets its memory back."""
        mine = self.of_rank[k, r]
        if not s.posted & self.post_bit[k, r] or mine & ~s.had or mine & s.loading:
            return False
        serves = self.of_owner.get((k, r), 0) & ~self.kept & ~self.scatter
        return not serves & ~s.have

    def takes_slot(self, s, k, node):
        """Whether an op that has entered there needs its place."""
        if self.others_of.get((k, node), 0) & ~s.gone or (
                self.of_owner.get((k, node), 0) & self.own & ~s.have):
            return True
        return node in self.members and not self.is_done(s, k, node)

    def slots_taken(self, s, ops, node):
        """Of these ops, which have entered there; places are given back in the order of the ops."""
        return next((len(ops) - i for i, k in enumerate(ops) if self.takes_slot(s, k, node)), 0)

    def is_freed(self, s, k, o, t):
        cells = self.of_tile[k, o, t]
        if self.rules.frees_first:
            return bool(cells & s.have & ~self.own) or not cells & ~s.have
        return not cells & ~s.have

    def finished(self, s):
        return (s.posted == self.all_posted and s.have == self.all and s.gone == self.others and (
            not self.case.leaves or s.left == sum(1 << r for r in self.members)))

    # Packets.
    def send(self, s, kind, bit):
        """It arrives, is lost, or is late."""
        yield self.deliver(s, kind, bit)
        yield s
        late = s.late | bit << kind * len(self.cells)
        if late.bit_count() <= self.case.late:
            yield s._replace(late=late)

    def arrive_late(self, s):
        for at in bits(s.late):
            kind = (at.bit_length() - 1) // len(self.cells)
            bit = at >> kind * len(self.cells)
            gone = s._replace(late=s.late ^ at)
            yield gone
            yield self.deliver(gone, kind, bit)
            yield self.deliver(s, kind, bit)

    def deliver(self, s, kind, bit):
        if kind == IDLE:
            if s.heard & bit and not self.rules.not_sticky:
                return s
            pulled = s.pulled if self.rules.keeps_window else (
                s.pulled & ~self.of_three[self.of_pair[bit]])
            return s._replace(idle=s.idle | bit, pulled=pulled)
        k, o, r, t = self.of_cell[bit]
        pair = self.pairs[k, o, r]
        if kind == PULL:
            if s.left >> r & 1 or not s.posted & self.post_bit[k, r]:
                return s  # who has not posted answers in pull()
            known = 0 if self.rules.late_parts else s.done
            return s._replace(knows=s.knows | pair & self.told_pairs,
                              asked=s.asked & ~(pair * self.rules.until_pulled),
                              loading=s.loading | bit & ~known)
        if kind == PART:
            s = self.hear(s, pair)
            if s.started & self.tiles[k, o, t] and not s.got & bit:
                s = s._replace(got=s.got | bit, pulled=s.pulled & ~bit)
            return s
        if kind == PULL_RESULT:
            if s.left >> o & 1 or self.is_freed(s, k, o, t):
                return s
            return s._replace(serving=s.serving | bit & ~s.have)
        if s.pulling & bit and not s.had & bit:
            s = s._replace(had=s.had | bit, pulling=s.pulling & ~bit)
        return s

    def hear(self, s, pair):
        return s._replace(heard=s.heard | pair, idle=s.idle & ~pair)

    # What may happen.
    def next(self, s):
        for step in (self.post, self.offer, self.begin, self.pull, self.load,
                     self.tell, self.take, self.serve, self.leave, self.arrive_late):
            for t in step(s):
                yield self.settle(t)

    def settle(self, s):
        """What follows at once: turns are given up, what is not needed is dropped."""
        if s.started != s.folded:
            s = self.fold(s)
        turn = s.turn
        for bit, cells in self.cells_of_turn:
            if turn & bit and not cells & ~s.had & (s.done | self.all * self.rules.keeps_turn):
                turn ^= bit
        had = s.had | s.done & self.scatter
        taken = 0  # pairs of whose parts nothing is needed
        if s.asked | s.heard | s.idle:
            for bit, cells in self.cells_of_pair:
                taken |= 0 if cells & ~s.done else bit
        n = len(self.cells)
        dull = (s.heard << IDLE * n | s.got << PART * n | had << RESULT * n |
                s.have << PULL_RESULT * n)
        if not self.rules.late_parts:
            dull |= s.done << PULL * n
        late = s.late if self.rules.not_sticky else s.late & ~dull
        return s._replace(turn=turn, serving=s.serving & ~s.have, had=had, late=late,
                          asked=s.asked & ~taken, heard=s.heard & ~taken, idle=s.idle & ~taken)

    def post(self, s):
        for r in self.members:
            mine = [k for k in range(len(self.case.ops)) if s.posted & self.post_bit[k, r]]
            k = len(mine)
            under_way = sum(not self.is_done(s, j, r) for j in mine)
            slots = self.slots_taken(s, mine, r)
            if k < len(self.case.ops) and slots < self.case.slots and (
                    under_way < self.case.depth.get(r, k + 1)):
                yield s._replace(posted=s.posted | self.post_bit[k, r])

    def offer(self, s):
        """A rank tells who asked before it had posted; owners without members, of each op."""
        for pair in bits(s.asked):
            k, o, r = self.of_pair[pair]
            if s.posted & self.post_bit[k, r] and not self.rules.never_posted:
                heard = self.hear(s, pair)
                yield heard
                yield heard._replace(asked=s.asked ^ pair)  # and the answer comes
        for (k, o, r), pair in self.pairs.items():
            if o in self.members or not s.posted & self.post_bit[k, r] or s.knows & pair:
                continue
            if any((j, o, r) in self.pairs and not s.knows & self.pairs[j, o, r]
                   for j in range(k)):
                continue  # one place: the oldest goes alone
            if self.entered(s, k, o):
                yield s._replace(knows=s.knows | pair)
            else:
                yield s._replace(call=s.call | pair)
        for (k, o, r), pair in self.pairs.items():
            taken = self.slots_taken(s, [j for j in range(k) if self.entered(s, j, o)], o)
            if s.call & pair and not self.entered(s, k, o) and taken < self.case.slots:
                yield s._replace(entered=s.entered | 1 << (k * 8 + o))

    def begin(self, s):
        """A tile gets its places."""
        for k, op in enumerate(self.case.ops):
            for o, count in op.tiles.items():
                t = next((t for t in range(count) if not s.started & self.tiles[k, o, t]), None)
                if t is None or not self.entered(s, k, o):
                    continue
                tile = self.tiles[k, o, t]
                if op.kind == GATHER:
                    yield s._replace(started=s.started | tile)
                    continue
                older = [b for (j, a, _), b in self.tiles.items() if a == o and j < k]
                if not self.rules.any_order and any(not s.started & b for b in older):
                    continue
                mine = [(n, b) for n, b in self.tiles.items() if n[1] == o and s.started & b
                        and self.case.ops[n[0]].kind != GATHER]
                held = sum(not s.folded & b for _, b in mine)
                results = sum(bool(self.of_tile[n] & self.kept) and not self.is_freed(s, *n)
                              for n, _ in mine)
                if held < self.case.places and (
                        not self.of_tile[k, o, t] & self.kept or results < self.case.results):
                    yield s._replace(started=s.started | tile,
                                     got=s.got | self.of_tile[k, o, t] & self.own)

    def has_room(self, s, bit, kind, node):
        """Whether `node` may pull: within its window, or the first of this kind."""
        asked = (s.pulled & self.parts_of.get(node, 0), s.pulling & self.results_of.get(node, 0))
        return bit & asked[kind] or not asked[kind] or (
            (asked[0].bit_count() + asked[1].bit_count()) < self.case.window)

    def pull(self, s):
        for (k, o, r, t), bit in self.cells.items():
            pair = self.pairs[k, o, r]
            if not s.started & self.tiles[k, o, t] or s.got & bit or s.idle & pair or o == r:
                continue
            if self.case.ops[k].kind == GATHER or not self.has_room(s, bit, 0, o):
                continue
            asks = s._replace(pulled=s.pulled | bit)
            if s.posted & self.post_bit[k, r]:
                yield from self.send(asks, PULL, bit)
                continue
            yield asks  # lost
            late = s.late | bit << PULL * len(self.cells)
            if late.bit_count() <= self.case.late:
                yield asks._replace(late=late)
            yield from self.send(asks._replace(asked=s.asked | pair), IDLE, pair)

    def load(self, s):
        """A rank reads its part, and sends it."""
        for bit in bits(s.loading):
            k, o, r, t = self.of_cell[bit]
            if s.had & bit & self.reduced:
                raise Wrong(f"a part of tile {t} is read where its result was written")
            if not s.posted & self.post_bit[k, r] or self.is_done(
                    s._replace(loading=s.loading ^ bit), k, r) and not s.done & bit:
                raise Wrong(f"a part of op {k} is read that is done")
            yield from self.send(s._replace(loading=s.loading ^ bit), PART, bit)

    def fold(self, s):
        """Tiles in their order, as soon as all parts are there."""
        for (k, o, t), tile in self.tiles.items():
            if not s.started & tile or s.folded & tile:
                continue
            if t > 0 and not s.folded & self.tiles[k, o, t - 1]:
                continue
            cells = self.of_tile[k, o, t]
            if self.case.ops[k].kind != GATHER and cells & ~s.got:
                continue
            own = cells & self.own
            s = s._replace(folded=s.folded | tile, done=s.done | own, had=s.had | own,
                           have=s.have | own)
        return s

    def take(self, s):
        """A rank gives turns to owners, and pulls results."""
        for (r, o), bit in self.turns.items():
            ready = self.of_turn[r, o] & s.done & ~s.had & ~self.own
            if not ready or s.left >> r & 1:
                continue
            if not s.turn & bit:
                taken = sum(bool(s.turn & b) for (a, _), b in self.turns.items() if a == r)
                if taken < self.case.turns:
                    yield s._replace(turn=s.turn | bit)
                continue
            for cell in bits(ready):
                if s.loading & cell and not self.rules.late_parts:
                    continue
                if self.has_room(s, cell, 1, r):
                    yield from self.send(s._replace(pulling=s.pulling | cell), PULL_RESULT, cell)

    def serve(self, s):
        for bit in bits(s.serving):
            k, o, r, t = self.of_cell[bit]
            if not self.is_freed(s, k, o, t):
                yield from self.send(s._replace(serving=s.serving ^ bit), RESULT, bit)

    def check(self):
        """What is wrong, or None; and how many states there are."""
        return check(self.start(), self.next, self.judge, self.finished)

    def judge(self, s):
        if s.have & ~s.had:
            raise Wrong("an owner believes that a rank has what it has not")
        for (k, o, t) in self.tiles:
            if self.is_freed(s, k, o, t) and self.of_tile[k, o, t] & ~s.had:
                raise Wrong(f"a result of tile {t} was freed before all ranks had it")

