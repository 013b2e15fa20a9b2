#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every state of the rules of doc/protocol/tiles.md, at two and three ranks: see tiles_rules.py.
Each rule that is left out has to be found.

    tiles.py         the cases that take seconds
    tiles.py --long  cases that take minutes, too"""

import argparse
import sys
import time

from tiles_rules import GATHER, REDUCE, SCATTER, Case, Model, Op, Rules

BOTH, ALL = (0, 1), (0, 1, 2)
EACH = {0: 1, 1: 1}
# Ranks 2 and 3 have no members. An owner has one place for parts and one for results.
LENT = Case(BOTH, [Op(REDUCE, {2: 2, 3: 2})], late=0, begun=True)
DEPTHS = Case(BOTH, [Op(REDUCE, {0: 2, 1: 1}), Op(REDUCE, EACH)], {1: 1}, late=0)
PAIR = Case(BOTH, [Op(REDUCE, EACH)])
LATE = Case(BOTH, [Op(REDUCE, EACH), Op(SCATTER, {0: 1})], {1: 1}, places=2, late=0, encoded=False)
LEAVING = Case(BOTH, [Op(REDUCE, EACH)], late=0, leaves=True)
LENT_LEAVING = Case(BOTH, [Op(REDUCE, {2: 1})], late=0, leaves=True)
THREE = Case(BOTH, [Op(REDUCE, {0: 1})] * 3, late=0, slots=2)
CASES = {
    "2 ranks, all-reduce": Case(BOTH, [Op(REDUCE, {0: 2, 1: 1})]),
    "2 ranks, all-reduce, two packets late": Case(BOTH, [Op(REDUCE, {0: 2, 1: 1})], late=2),
    "2 ranks, reduce-scatter": Case(BOTH, [Op(SCATTER, {0: 2, 1: 1})]),
    "2 ranks, all-gather": Case(BOTH, [Op(GATHER, {0: 2, 1: 1})]),
    "2 ranks of other depths": DEPTHS,
    "2 ranks of other depths, results from outputs": LATE,
    "2 ranks of other depths, one place for ops": DEPTHS._replace(late=1, slots=1),
    "2 ranks, one of them leaves first": Case(BOTH, [Op(REDUCE, {0: 2, 1: 1})], leaves=True,
                                              encoded=False),
    "2 ranks, an all-reduce and an all-gather": Case(
        BOTH, [Op(REDUCE, EACH), Op(GATHER, EACH)], {0: 1}, late=0, leaves=True),
    "2 ranks, two owners without members": LENT,
    "2 ranks, an owner without members, two ops": Case(
        BOTH, [Op(REDUCE, {2: 1}), Op(REDUCE, {2: 1})], {1: 1}),
    "2 ranks, an owner without members, two ops, one place for them": Case(
        BOTH, [Op(REDUCE, {2: 1}), Op(REDUCE, {2: 1})], slots=1),
    "2 ranks, an owner without members, ranks leave": LENT_LEAVING,
    "2 ranks, three ops, two places for them": THREE,
    "3 ranks, one owner": Case(ALL, [Op(REDUCE, {0: 2})]),
    "3 ranks, two owners": Case(ALL, [Op(REDUCE, EACH)], late=0),
    "3 ranks, reduce-scatter": Case(ALL, [Op(SCATTER, EACH)], late=0),
    "3 ranks, all-gather": Case(ALL, [Op(GATHER, EACH)], late=0),
}
LONG = {
    "2 ranks, two owners without members, late": LENT._replace(begun=False),
    "2 ranks, an owner with members and one without": Case(
        BOTH, [Op(REDUCE, {0: 1, 2: 1}), Op(SCATTER, EACH)], {1: 1}, late=0),
    "2 ranks of other depths, two packets late": DEPTHS._replace(late=2),
    "2 ranks, larger windows": Case(BOTH, [Op(REDUCE, {0: 3, 1: 2})], window=3, places=2,
                                    results=2, late=0),
    "2 ranks, larger windows, a packet late": Case(BOTH, [Op(REDUCE, {0: 2, 1: 1})], window=2,
                                                   places=2, results=2),
    "3 ranks, each an owner, all have posted": Case(ALL, [Op(REDUCE, {0: 1, 1: 1, 2: 1})],
                                                    late=0, begun=True),
    "3 ranks, reduce-scatter, a packet late": Case(ALL, [Op(SCATTER, EACH)]),
    "3 ranks, all-gather, a packet late": Case(ALL, [Op(GATHER, EACH)]),
}
WRONG = {
    "a turn stays with an owner that has nothing ready": ("keeps_turn", LENT),
    "tiles of an op start before all of the op before it": ("any_order", DEPTHS),
    "the window of a rank that has not posted is kept": ("keeps_window", LATE),
    "parts are made of tiles that are folded": ("late_parts", PAIR),
    "a result is freed when the first rank has it": ("frees_first", LENT),
    "an owner says only once what is done": ("tells_once", PAIR),
    "who was asked before it had posted does not say that it has": ("never_posted", PAIR),
    "it says so until it is pulled from, and not until it is answered": ("until_pulled", PAIR),
    "'not posted' is believed after 'posted'": ("not_sticky", PAIR),
    "a rank leaves before owners know what it has": ("leaves_early", LEAVING),
    "an owner's question is answered by a tile call": ("answers_call", LENT),
    "`all` is of one op, and said of the last one": ("last_all", THREE),
    "a rank aborts when one leaves that owes it nothing": ("fears_leaving", LENT_LEAVING),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true")
    right = True
    for name, case in {**CASES, **(LONG if parser.parse_args().long else {})}.items():
        begun = time.monotonic()
        wrong, states = Model(case).check()
        took = time.monotonic() - begun
        print(f"{name}: {states} states in {took:.1f} s, {wrong or 'right'}", flush=True)
        right &= wrong is None
    for name, (rule, case) in WRONG.items():
        wrong, states = Model(case, Rules(**{rule: True})).check()
        print(f"planted: {name}: {wrong or 'not found'}, of {states} states", flush=True)
        right &= wrong is not None
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
