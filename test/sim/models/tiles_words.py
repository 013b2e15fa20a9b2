# SPDX-License-Identifier: BSD-3-Clause
"""The model of tiles: what owners say is done, what ranks say that they have, and leaving. A part
of Model in tiles_rules.py."""

from states import Wrong

# Kinds of packets that a model keeps.
PULL, IDLE, PART, PULL_RESULT, RESULT = range(5)


class Words:
    def tell(self, s):
        """Owners say what is done; ranks, what they have; owners, that they know."""
        for (k, o, r), pair in self.pairs.items():
            if o == r or s.left >> o & 1:
                continue
            cells = self.of_three[k, o, r]
            folded = sum(self.cells[k, o, r, t] for t in range(self.case.ops[k].tiles[o])
                         if s.folded & self.tiles[k, o, t])
            new = folded & ~(s.told if self.rules.tells_once else s.done)
            if new and not s.idle & pair and not s.left >> r & 1:
                told = s._replace(told=s.told | new) if self.rules.tells_once else s
                yield told
                if s.posted & self.post_bit[k, r]:
                    yield told._replace(done=s.done | folded)
                else:  # an all-gather's
                    yield from self.send(told._replace(asked=s.asked | pair), IDLE, pair)
            if not s.left >> r & 1:
                yield from self.confirm(s, k, o, r)
            if self.case.leaves and s.gone & pair and not s.over & pair:
                yield s._replace(over=s.over | pair)

    def confirm(self, s, k, o, r):
        """A rank says how far it is: `all` until it is answered, of the last op of which it has
        everything, as of those before it; else once, and when the owner asks."""
        cells, first = self.of_three[k, o, r], s.have | s.had & self.of_three[k, o, r]
        mine = [j for j in range(len(self.case.ops)) if (j, o, r) in self.pairs]
        whole = [j for j in mine if not self.of_three[j, o, r] & ~s.had]
        if not self.rules.last_all:  # all of it, and of those before
            whole = whole[:next((i for i, j in enumerate(whole) if j != mine[i]), len(whole))]
        if whole and k == whole[-1]:
            ops = whole[-1:] if self.rules.last_all else whole
            gone = s.gone | sum(self.pairs[j, o, r] for j in ops)
            have = s.have | sum(self.of_three[j, o, r] for j in ops)
            if (gone, have) != (s.gone, s.have):
                yield s._replace(gone=gone, have=have)
        if first == s.have or (k in whole and not self.rules.last_all):
            return
        if not self.rules.answers_call:
            yield s._replace(have=first)
        elif s.had & cells & ~s.said:
            once = s._replace(said=s.said | s.had & cells)
            yield once
            yield once._replace(have=first)

    def leave(self, s):
        if not self.case.leaves:
            return
        for r in self.members:
            if s.left >> r & 1 or any(not self.is_done(s, k, r)
                                      for k in range(len(self.case.ops))):
                continue
            serves = sum(self.of_owner.get((k, r), 0) for k in range(len(self.case.ops)))
            if serves & ~s.have:
                continue
            # An owner that has left had heard of everything; silence tells that it has.
            if self.rules.leaves_early or all(
                    s.over & bit or s.left >> o & 1
                    for (_, o, a), bit in self.pairs.items() if a == r != o):
                self.judge_leaving(s, r)
                yield s._replace(left=s.left | 1 << r)

    def judge_leaving(self, s, rank):
        """Nobody may be left waiting; nor may a rank abort that still waits, but for others."""
        for (k, o, r, t), bit in self.cells.items():
            if rank == o != r and not s.had & bit or rank == r != o and not s.done & bit:
                raise Wrong(f"rank {rank} leaves, and owes something of op {k}")
        if self.rules.fears_leaving and any(
                not s.left >> r & 1 and not self.is_done(s, k, r)
                for k, r in self.of_rank if r != rank):
            raise Wrong(f"rank {rank} leaves in order, and another aborts for it")
