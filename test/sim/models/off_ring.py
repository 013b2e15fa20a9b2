#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A model of the rules of doc/protocol for what goes off the ring (early places, what a receiver
tells, what a sender keeps, leaving), small enough to visit every state: two or three ranks that
post ops in any depth, over links that delay, reorder, repeat and lose. In every state it must hold
that scratch is freed only if all receivers have what lay in it; and from every state the end must
be reachable: all ops done, all scratch free. Rules left out on purpose show that the check finds
their want.

An acknowledgement is delivered in the step that causes it, or lost. It only ever raises what its
receiver knows, so one that comes late tells no more than one that came at once."""

import sys
from collections import namedtuple
from itertools import product

# A message is one packet. needs: names of messages that must be at its sender first.
Message = namedtuple("Message", "order op source target needs small")
Rules = namedtuple("Rules", "ping tell leave_early free_early", defaults=(True, True, False, False))
# entered: {(order, rank): ops}; at, acked, early, held, flying: sets of message numbers;
# told: {(order, from rank, to rank): op}; left: ranks.
State = namedtuple("State", "entered at acked early held flying told left")
PLACES = 1  # of a link and class; less than the protocol's two, so that they are short


class Model:
    def __init__(self, ranks, orders, scratch, rules):
        """orders: [(ranks that post, whether acks' posted_op_seq is this order's, [op])],
        op: [(source, target, needs, small)]; needs are places in the op's list."""
        self.ranks, self.rules, self.scratch, self.orders = ranks, rules, scratch, orders
        self.messages = []
        for order, (_, _, ops) in enumerate(orders):
            for op, parts in enumerate(ops, 1):
                base = len(self.messages)
                for source, target, needs, small in parts:
                    needs = tuple(base + n for n in needs)
                    self.messages.append(Message(order, op, source, target, needs, small))
        self.posts = sorted((o, r) for o, (who, _, _) in enumerate(orders) for r in who)
        self.pairs = sorted({(o, a, b) for o, (who, _, _) in enumerate(orders)
                             for a in who for b in who if a != b})

    def start(self):
        none = frozenset()
        return State((0,) * len(self.posts), none, none, none, none, none,
                     (0,) * len(self.pairs), none)

    def entered(self, s, order, rank):
        return s.entered[self.posts.index((order, rank))]

    def told(self, s, order, source, target):
        return s.told[self.pairs.index((order, source, target))]

    def tell(self, s, source, target):
        """What an acknowledgement from source says reaches target."""
        told = list(s.told)
        for i, (order, a, b) in enumerate(self.pairs):
            if (a, b) == (source, target):
                told[i] = max(told[i], self.entered(s, order, a))
        acked = s.acked | {m for m in s.at if self.messages[m].target == source
                           and self.messages[m].source == target}
        s = s._replace(told=tuple(told), acked=acked)
        passed = {m for m in s.early if m in acked or self.known(s, m)}
        return s._replace(early=s.early - passed)

    def known(self, s, m):
        p = self.messages[m]
        return self.told(s, p.order, p.target, p.source) >= p.op

    def done(self, s, order, op, rank):
        return all(i in s.at for i, p in enumerate(self.messages)
                   if (p.order, p.op, p.target) == (order, op, rank))

    def unacked(self, s, order, op, rank):
        return any(i not in s.acked for i, p in enumerate(self.messages)
                   if (p.order, p.op, p.source) == (order, op, rank))

    def holds_scratch(self, s, order, op, rank):
        if op > self.entered(s, order, rank):
            return False
        if not self.done(s, order, op, rank):
            return True
        return self.unacked(s, order, op, rank) and not self.rules.free_early

    def in_class(self, s, group, m):
        """How many of the messages in group use the early places that m would use."""
        p = self.messages[m]
        own = self.orders[p.order][1]
        return sum((q.source, q.target, self.orders[q.order][1]) == (p.source, p.target, own)
                   for q in (self.messages[i] for i in group))

    def finished(self, s):
        return len(s.at) == len(self.messages) and all(
            r in s.left or not self.unacked(s, o, op, r)
            for o, (who, _, ops) in enumerate(self.orders)
            for op in range(1, len(ops) + 1) for r in who)

    def next(self, s):
        yield from self.enter(s)
        yield from self.send(s)
        yield from self.arrive(s)
        yield from self.ask(s)
        yield from self.leave(s)

    def enter(self, s):
        for i, (order, rank) in enumerate(self.posts):
            ops = self.orders[order][2]
            op = s.entered[i] + 1
            held = sum(self.holds_scratch(s, order, j, rank) for j in range(1, op))
            if op > len(ops) or held >= self.scratch or rank in s.left:
                continue
            entered = s.entered[:i] + (op,) + s.entered[i + 1:]
            came = {m for m in s.held if self.messages[m].target == rank
                    and (self.messages[m].order, self.messages[m].op) == (order, op)}
            holds = {self.messages[m].source for m in s.held if self.messages[m].target == rank}
            t = s._replace(entered=entered, at=s.at | came, held=s.held - came)
            awaited = {p.source for p in self.messages
                       if (p.order, p.op, p.target) == (order, op, rank) and not p.small}
            hear = sorted(holds | awaited) if self.rules.tell else []
            for heard in product((False, True), repeat=len(hear)):
                u = t
                for other, yes in zip(hear, heard):
                    u = self.tell(u, rank, other) if yes else u
                yield u

    def ready(self, s, m):
        p = self.messages[m]
        if self.entered(s, p.order, p.source) < p.op or m in s.acked or p.source in s.left:
            return False
        if self.rules.free_early and self.done(s, p.order, p.op, p.source) and (
                self.entered(s, p.order, p.source) > p.op):
            return False  # its scratch holds another op by now
        return all(n in s.at for n in p.needs)

    def send(self, s):
        for m, p in enumerate(self.messages):
            if not self.ready(s, m) or m in s.flying:
                continue
            if self.known(s, m):
                yield s._replace(flying=s.flying | {m})
            elif p.small and m not in s.early and self.in_class(s, s.early, m) < PLACES:
                yield s._replace(flying=s.flying | {m}, early=s.early | {m})

    def arrive(self, s):
        for m in s.flying:
            p = self.messages[m]
            gone = s._replace(flying=s.flying - {m})
            yield gone  # lost
            if p.target in s.left:
                continue
            for t in (gone, s):  # the second: the packet comes once more
                if m in s.at or self.entered(s, p.order, p.target) >= p.op:
                    t = t._replace(at=t.at | {m})
                    yield t  # its acknowledgement is lost
                    yield self.tell(t, p.target, p.source)
                elif m not in s.held and self.in_class(s, s.held, m) < PLACES:
                    yield t._replace(held=t.held | {m})

    def ask(self, s):
        """Pings of who has something to send, answered; and what a receiver that waits tells."""
        for m, p in enumerate(self.messages):
            if self.rules.ping and self.ready(s, m):
                if p.target in s.left:
                    closed = {i for i, q in enumerate(self.messages)
                              if (q.source, q.target) == (p.source, p.target)}
                    yield s._replace(acked=s.acked | closed, early=s.early - closed)
                else:
                    yield self.tell(s, p.target, p.source)
            if self.rules.tell and m not in s.at and p.target not in s.left:
                if self.entered(s, p.order, p.target) >= p.op:
                    yield self.tell(s, p.target, p.source)

    def leave(self, s):
        for rank in range(self.ranks):
            if rank in s.left:
                continue
            mine = [(o, op) for o, (who, _, ops) in enumerate(self.orders) if rank in who
                    for op in range(1, len(ops) + 1)]
            if all(self.entered(s, o, rank) >= op and self.done(s, o, op, rank)
                   and (self.rules.leave_early or not self.unacked(s, o, op, rank))
                   for o, op in mine):
                yield s._replace(left=s.left | {rank})

    def check(self):
        """None, or what is wrong. Also how many states there are."""
        first = self.start()
        before, todo, ends = {first: []}, [first], []
        while todo:
            s = todo.pop()
            if not s.acked <= s.at:
                return "acknowledged and not there", len(before)
            if self.finished(s):
                ends.append(s)
            for t in self.next(s):
                if t not in before:
                    before[t] = []
                    todo.append(t)
                if t != s:
                    before[t].append(s)
        good, todo = set(ends), list(ends)
        while todo:
            for s in before[todo.pop()]:
                if s not in good:
                    good.add(s)
                    todo.append(s)
        stuck = len(before) - len(good)
        return (f"{stuck} states from which the end cannot be reached" if stuck else None), len(
            before)


def direct(ranks, small=True):
    return [(a, b, (), small) for a in range(ranks) for b in range(ranks) if a != b]


TO_ZERO = [(1, 0, (), True)]
TWO = [(1, 0, (), True), (0, 1, (0,), True)]  # a contribution, and the sum that needs it
TWO_LARGE = [(1, 0, (), False), (0, 1, (0,), False)]
THREE = [(1, 0, (), True), (2, 0, (), True), (0, 1, (0, 1), True), (0, 2, (0, 1), False)]
GATHER = [(1, 0, (), True), (2, 0, (), False)]
PASS = [(0, 1, (), True), (1, 2, (0,), True)]
BOTH, ALL = (0, 1), (0, 1, 2)
ONE = [(0, 1, (), True)]
SEND = [(0, 1, (), True), (0, 1, (), False)]
CASES = {
    "2 ranks, small ops": (2, [(BOTH, True, [direct(2), TO_ZERO, direct(2)])]),
    "2 ranks, large ops": (2, [(BOTH, True, [direct(2, False), TWO_LARGE, TWO])]),
    "2 ranks, one only sends": (2, [(BOTH, True, [TO_ZERO, TO_ZERO, TO_ZERO])]),
    "3 ranks": (3, [(ALL, True, [GATHER, PASS])]),
    "3 ranks, two steps": (3, [(ALL, True, [THREE])]),
    "messages of two pairs beside an op": (2, [(BOTH, True, [ONE]), (BOTH, False, [SEND]),
                                               (BOTH, False, [ONE])]),
}
WRONG = {
    "nobody asks for a lost word": Rules(ping=False, tell=False),
    "only receivers ask": Rules(ping=False),
    "leaving with data that is not acknowledged": Rules(leave_early=True),
    "scratch freed when the op is done": Rules(free_early=True),
}


def main():
    failed = False
    for name, (ranks, orders) in CASES.items():
        for scratch in (1, 2) if ranks == 2 else (1,):
            if scratch > max(len(ops) for _, _, ops in orders):
                continue
            wrong, states = Model(ranks, orders, scratch, Rules()).check()
            print(f"{name}, scratch for {scratch}: {states} states, {wrong or 'right'}")
            failed |= wrong is not None
    for name, rules in WRONG.items():
        found = [Model(*CASES[case], 1, rules).check()[0]
                 for case in ("2 ranks, small ops", "2 ranks, one only sends")]
        print(f"planted: {name}: {found}")
        failed |= not all(found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
