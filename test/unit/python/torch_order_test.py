#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradwire.torch.order: which views have memory in common, beside sets of all their bytes."""
import collections
import random
import sys
import types
import unittest

try:
    import torch
except ImportError:
    print("SKIP: torch is not installed")
    sys.exit(77)

from gradwire.torch import order
from gradwire.torch.order import Span


def _view(generator, bases):
    """A view of one of some tensors on the same memory."""
    view = generator.choice(bases)
    for dim in range(view.dim()):
        begin = generator.randrange(view.shape[dim])
        length = generator.randint(0 if generator.random() < 0.02 else 1, view.shape[dim] - begin)
        if generator.random() < 0.2:
            length = min(length, 1)
        view = view.narrow(dim, begin, length)
        if generator.random() < 0.2:
            view = view[(slice(None),) * dim + (slice(None, None, generator.randint(1, 3)),)]
    if generator.random() < 0.3:
        view = view.permute(generator.sample(range(view.dim()), view.dim()))
    if generator.random() < 0.1:
        view = view.unsqueeze(0).expand(3, *view.shape)
    if generator.random() < 0.1 and view.dim() == 2 and view.shape[1] > 1:
        view = view.unfold(1, 2, 1)
    return view


def _bytes(view):
    """The addresses of all bytes of its elements."""
    offsets = torch.zeros((), dtype=torch.int64)
    for stride, size in zip(view.stride(), view.shape):
        offsets = offsets.unsqueeze(-1) + stride * torch.arange(size)
    width = view.element_size()
    return {view.data_ptr() + width * offset + byte
            for offset in set(offsets.flatten().tolist()) for byte in range(width)}


class OrderTest(unittest.TestCase):
    def test_views_meet_where_they_have_a_byte_in_common(self):
        memory = torch.zeros(720)
        halves = memory.view(torch.int16)
        bases = [
            memory, memory.view(24, 30), memory.view(30, 24), memory.view(6, 10, 12),
            memory[:700].view(20, 35),
            memory.view(4, 5, 6, 6), halves.view(48, 30), halves.view(20, 72),
            memory.as_strided((10, 20), (13, 2)), memory.view(torch.complex64).view(10, 36),
        ]
        met = 0
        for seed in range(4000):
            generator = random.Random(seed)
            some, others = _view(generator, bases), _view(generator, bases)
            right = not _bytes(some).isdisjoint(_bytes(others))
            met += right
            for one, other in ((some, others), (others, some)):
                self.assertIs(Span(one).meets(Span(other)), right, "seed %d: %s %s, %s %s" % (
                    seed, tuple(one.shape), one.stride(), tuple(other.shape), other.stride(),
                ))
        self.assertTrue(400 < met < 3600, met)

    def test_faces_of_a_grid_are_apart(self):
        """Those that each process of a stencil's sends, and those that it receives."""
        for sides in ((1000, 1000), (40, 50, 60), (9, 8, 7, 6)):
            grid = torch.zeros(sides)
            inner = (slice(1, -1),) * len(sides)
            sent = [grid[inner[:dim] + (at,) + inner[dim + 1 :]]
                    for dim in range(len(sides)) for at in (1, -2)]
            received = [grid[inner[:dim] + (at,) + inner[dim + 1 :]]
                        for dim in range(len(sides)) for at in (0, -1)]
            for i, one in enumerate(received):
                for other in sent + received[:i] + received[i + 1 :]:
                    self.assertIs(Span(one).meets(Span(other)), False)
            for dim in range(len(sides)):
                for other in sent[2 * dim + 2 :]:
                    self.assertIs(Span(sent[2 * dim]).meets(Span(other)), True)

    def test_what_would_take_too_long_is_left_open(self):
        memory = torch.zeros(6_000_000)
        # Nothing divides all of their steps.
        one = memory.as_strided((1000, 900), (5003, 7))
        other = memory[3:].as_strided((1000, 900), (4999, 5))
        most = order._MOST_TRIES
        try:
            order._MOST_TRIES = 1
            self.assertIs(Span(one).meets(Span(other)), None)
            self.assertTrue(order.overlap([Span(one)], [Span(other)]))
            self.assertFalse(order.overlap([Span(one)], [Span(other)], if_unsure=False))
        finally:
            order._MOST_TRIES = most

    def test_ops_that_were_called_later_are_not_looked_at(self):
        tensor = torch.zeros(4)
        copied = []

        class Queue(collections.deque):
            def __iter__(self):
                copied.append(self)
                return super().__iter__()

        def op(number):
            return types.SimpleNamespace(number=number, done=False, keep=(tensor, tensor),
                                         spans=None)

        class Channel(types.SimpleNamespace):
            __hash__ = object.__hash__

        def waits(number, *queues):
            channel = Channel(queues=[Queue(map(op, queue)) for queue in queues])
            return order.has_to_wait(types.SimpleNamespace(queuing={channel}), op(number))

        later = range(10, 5000)
        for queues, right in (((later, []), False), ((later, [9]), False), (([], [7]), True),
                              (([6, *later], later), True)):
            copied.clear()
            self.assertEqual(waits(8, *queues), right)
            self.assertEqual(len(copied), right)


if __name__ == "__main__":
    unittest.main()
