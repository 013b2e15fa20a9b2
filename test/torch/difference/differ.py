# SPDX-License-Identifier: BSD-3-Clause
"""One process of a job that makes random calls of torch.distributed, right and wrong, on Gloo and
on gradwire, and compares what becomes of them.

    differ.py [--seed S] [--calls N] [--from A] [--only K] [--failures F] [--limit SECONDS]

Each call is drawn from the seed and its number alone, so --only K makes call K of a run again, and
--from A all from A on. The same bytes in all memory that the calls' tensors have, guards around it
included, and the same answers; or an error on both, after which the groups go on; or an entry of
differences.py. Tensors that are not contiguous are compared with Gloo's result for contiguous ones,
if the two differ: Gloo takes their elements to follow each other in memory.

The end is an error if a call differed. A failed call's report has the command that makes it again.
"""
import argparse
import collections
import datetime
import faulthandler
import gc
import logging
import os
import random
import re
import sys
import time
import warnings

import torch
import torch.distributed as dist

import differences
from board import Board
from differ_calls import CALLS
from differ_draw import Draw, Fatal
from guarded import first_difference, same_bytes

_STUCK_S = 60
_COLLECT_EACH = 25
_FUNCTIONS, _WEIGHTS = list(CALLS), list(CALLS.values())


class Outcome:
    """What became of a call on one backend. error: the exception, or None."""

    def __init__(self, draw, error, took_s):
        self.draw, self.error, self.took_s = draw, error, took_s

    def text(self):
        if self.error is None:
            return "done in %.3f s, answers %s" % (self.took_s, self.draw.notes)
        return "%s after %.3f s: %s" % (type(self.error).__name__, self.took_s,
                                        str(self.error).split("\n", maxsplit=1)[0][:300])


class Pair:
    """A group of Gloo's and one of gradwire's of the same processes."""

    def __init__(self, ranks, limit_s, agree):
        self.ranks, self.limit = ranks, datetime.timedelta(seconds=limit_s)
        self.agree = agree
        self.groups = {"gloo": self.make("gloo"), "gradwire": self.make("gradwire")}

    def make(self, backend):
        self.agree()  # Gloo waits for the others no longer than its group's timeout
        return dist.new_group(self.ranks, timeout=self.limit, backend=backend, sort_ranks=False)

    def renew(self, *backends):
        for backend in backends:
            if dist.get_rank() in self.ranks:
                dist.destroy_process_group(self.groups[backend])
            self.groups[backend] = self.make(backend)


class Job:
    def __init__(self, given):
        self.given = given
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=2 * _STUCK_S))
        self.me, self.world = dist.get_rank(), dist.get_world_size()
        every = list(range(self.world))
        groups = [every, every[::-1], [0]]
        groups += [[1, 2], [2, 0]] if self.world > 2 else []
        self.agree = Board(2 * _STUCK_S).agree
        self.pairs = [Pair(ranks, given.limit, self.agree) for ranks in groups]
        self.counts, self.documented = collections.Counter(), collections.Counter()
        self.failed, self.first = [], ""

    # ---- one call

    def made(self, number, function, pair, group, plainly=False):
        """Its Outcome on one group."""
        draw = Draw(self.given.seed, number, group, pair.ranks, self.me, self.given.limit, plainly)
        error = None
        began = time.monotonic()
        try:
            with torch.inference_mode(draw.inference in ("both", "called")):
                function(draw)
            draw.finish()
        except Exception as raised:  # of whatever kind: it is what is compared
            error = raised
        return Outcome(draw, error, time.monotonic() - began)

    def call(self, number):
        rng = random.Random("%d/%d/which" % (self.given.seed, number))
        function = rng.choices(_FUNCTIONS, _WEIGHTS)[0]
        pair = self.pairs[rng.choices(range(len(self.pairs)), [6, 1, 1, 1, 1][:len(self.pairs)])[0]]
        faulthandler.dump_traceback_later(_STUCK_S, exit=True)
        self.counts[function.__name__] += 1
        if self.given.trace:
            print("call %d: %s" % (number, function.__name__), flush=True)
        gloo = ours = difference = None
        member = self.me in pair.ranks
        if member:
            gloo = self.made(number, function, pair, pair.groups["gloo"])
        if number % _COLLECT_EACH == 0:
            # Never within a call: a collected group of Gloo's waits in its destructor until the ops
            # that were left on it reach their timeout, 2 s after they began.
            gc.collect()
        self.agree()  # so that nobody's time on gradwire runs while another is at Gloo
        if member:
            ours = self.made(number, function, pair, pair.groups["gradwire"])
            difference = compared(gloo, ours)
        ends = [member and (outcome.error is not None) == ended
                for outcome in (gloo, ours) for ended in (True, False)]
        ended = member and (ours.took_s > self.given.limit / 2
                            or re.search(r"\((ABORTED|TIMED_OUT)\)", str(ours.error)))
        apart = member and not isinstance(gloo.error, (TypeError, ValueError))
        differs, ended, apart, *ends = self.agree(difference is not None, ended, apart, *ends)
        wrong = Draw(self.given.seed, number, None, pair.ranks, pair.ranks[0], 1).wrong_at
        by_rank = wrong not in (None, "all")
        self.counts["errors"] += ends[0] or ends[2]
        self.counts["could differ by rank"] += by_rank
        # Of Gloo's processes some may have begun with a call that others have refused, and are out
        # of step for good. If all of gradwire's have refused a call its group goes on.
        if ends[0] and apart or by_rank:
            self.counts["groups of Gloo made anew"] += 1
            pair.renew("gloo")
        if ended or ends[2] and ends[3] or by_rank:
            self.counts["groups of gradwire made anew"] += 1
            pair.renew("gradwire")
        if differs:
            self.judge(number, function, pair, difference, gloo, ours)

    def judge(self, number, function, pair, difference, gloo, ours):
        """Whether every process's difference is a documented one."""
        plain = found = known = text = None
        failed, views = self.agree(ours is not None and ours.error is not None,
                                   ours is not None and ours.draw.views)
        if not failed:
            self.counts["made plainly too"] += 1
            if ours is not None:
                plain = self.made(number, function, pair, pair.groups["gloo"], True)
                found = against(plain, ours)
            if self.agree(plain is not None and plain.error is not None)[0]:
                pair.renew("gloo")
        if difference is not None:
            known = differences.explains(difference[0], gloo, ours, plain, found, views)
            draw = ours.draw
            by_rank = draw.mistake and (draw.wrong_at != "all" or draw.by_root)
            if by_rank and difference[0] != "guard":
                # As many bytes of another type are moved on both.
                told = failed or isinstance(gloo.error, Fatal)
                if told and ours.took_s < 2 * self.given.limit:
                    known = differences.BY_RANK
            text = "rank %d: %s, %s\n  Gloo:     %s\n  gradwire: %s\n  plainly:  %s\n  %s" % (
                self.me, *difference, gloo.text(), ours.text(),
                plain.text() + "; " + (found or "the same") if plain else "-", ours.draw.text())
        said = [None] * self.world
        dist.all_gather_object(said, (known, text))
        names = {name for name, _ in said} - {None, differences.ALONE}
        unknown = any(name is None and words is not None for name, words in said)
        if not names or unknown:
            self.failed.append(number)
            if self.me == 0:
                report = "DIFFERS: call %d, %s; again: --seed %d --only %d\n%s\n" % (
                    number, function.__name__, self.given.seed, number,
                    "\n".join(words for _, words in said if words is not None))
                self.first = self.first or report
                print(report, flush=True)
        else:
            self.documented.update(names)

    # ---- all

    def run(self):
        given = self.given
        first, last = given.first, given.calls
        if given.only is not None:
            first, last = given.only, given.only + 1
        began = time.monotonic()
        for number in range(first, last):
            self.call(number)
            if len(self.failed) >= given.failures:
                break
            if self.me == 0 and number % 5000 == 4999:
                print("%d calls, %.0f s" % (number + 1, time.monotonic() - began), flush=True)
        faulthandler.cancel_dump_traceback_later()
        if self.me == 0:
            print("seed %d, calls %d to %d, %d processes, %.1f s: %d differ" % (
                given.seed, first, number, self.world, time.monotonic() - began,
                len(self.failed)))
            print("documented differences, in calls:")
            for name, count in sorted(self.documented.items()):
                print("%7d %s" % (count, name))
            print("calls: %s" % dict(sorted(self.counts.items())))
            if self.failed:
                print("differ: %s; the first:\n%s" % (self.failed, self.first))
        dist.barrier()


def compared(gloo, ours):
    """(What kind of difference there is, more about it), or None. Both are of this process."""
    if ours.draw.wrong_at == "all" and ours.error is not None and not ours.draw.posted:
        if ours.draw.mistake is not None and not all(t.untouched() for t in ours.draw.tensors):
            return "wrote", "a call that was refused"
    limit_s = 0.9 * ours.draw.limit_s
    if ours.took_s > limit_s > gloo.took_s and ours.draw.wrong_at in (None, "all"):
        return "hang", "gradwire took %.2f s" % ours.took_s
    if gloo.error is not None and ours.error is None:
        return "Gloo refuses", ""
    if gloo.error is None and ours.error is not None:
        return "gradwire refuses", ""
    if not all(made.guards_intact() for made in ours.draw.tensors):
        return "guard", "bytes beside a tensor were written"
    if ours.error is not None:
        return None
    if not same_answers(gloo.draw.notes, ours.draw.notes):
        return "answers", ""
    text = same_memory([made.raw for made in gloo.draw.tensors], ours)
    return None if text is None else ("memory", text)


def same_answers(right, ours):
    """`...` is any."""
    return len(right) == len(ours) and all(a == b or a is ... for a, b in zip(right, ours))


def same_memory(right, ours):
    for place, (memory, made) in enumerate(zip(right, ours.draw.tensors)):
        if not same_bytes(memory, made.raw, made.tensor.dtype, ours.draw.reduces):
            return "tensor %d, %s: %s" % (place, made.text(), first_difference(memory, made.raw))
    return None


def against(plain, ours):
    """What differs from the reference, whose elements are put where the views' ones are; or
    None."""
    if plain.error is not None:
        return "Gloo refuses the reference"
    return same_memory([made.with_values(right.tensor.detach()) for right, made in zip(
        plain.draw.tensors, ours.draw.tensors)], ours)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--only", type=int)
    parser.add_argument("--failures", type=int, default=5, help="the run ends after so many")
    parser.add_argument("--limit", type=float, default=2.0, help="seconds, then a call hangs")
    parser.add_argument("--trace", action="store_true", help="print each call's number")
    given = parser.parse_args()
    import gradwire.torch  # registers the backend, if it is not installed

    assert gradwire.torch.supported()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("gradwire.torch").setLevel(logging.ERROR)
    job = Job(given)
    gc.disable()
    gc.freeze()
    job.run()
    sys.stdout.flush()
    os._exit(1 if job.failed else 0)  # calls that differed by rank may have left threads behind


if __name__ == "__main__":
    main()
