# SPDX-License-Identifier: BSD-3-Clause
"""Visits every state of a model, and finds those from which no end can be reached."""

from array import array


class Wrong(Exception):
    """What must not happen in any state."""


def check(first, successors, judge, finished):
    """What is wrong, or None; and how many states there are. judge() raises Wrong, and so may
    successors()."""
    number, todo, edges, ends = {first: 0}, [first], array("L"), []
    try:
        while todo:
            state = todo.pop()
            judge(state)
            at = number[state]
            if finished(state):
                ends.append(at)
            for after in set(successors(state)):
                if after not in number:
                    number[after] = len(number)
                    todo.append(after)
                edges.extend((number[after], at))
    except Wrong as wrong:
        return str(wrong), len(number)
    stuck = len(number) - reached(ends, edges, len(number))
    return (f"{stuck} states from which the end cannot be reached" if stuck else None), len(number)


def reached(ends, edges, states):
    """How many states lie on a way to one of the ends. edges: to, from, to, from, ..."""
    begin = array("L", bytes(8 * (states + 1)))
    for to in edges[::2]:
        begin[to + 1] += 1
    for i in range(states):
        begin[i + 1] += begin[i]
    at, sources = array("L", begin), array("L", bytes(8 * (len(edges) // 2)))
    for i in range(0, len(edges), 2):
        sources[at[edges[i]]] = edges[i + 1]
        at[edges[i]] += 1
    good, todo = bytearray(states), list(ends)
    for end in ends:
        good[end] = 1
    while todo:
        to = todo.pop()
        for source in sources[begin[to]:begin[to + 1]]:
            if not good[source]:
                good[source] = 1
                todo.append(source)
    return sum(good)
