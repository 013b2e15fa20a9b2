#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradwire.torch.arguments: calls that do not fit are refused before anything is posted."""
import sys
import unittest

try:
    import torch
except ImportError:
    print("SKIP: torch is not installed")
    sys.exit(77)

from gradwire.torch import arguments

CALL = arguments.Call("all_to_all_single", "7", 3, 1)
E = torch.empty


class ArgumentsTest(unittest.TestCase):
    def refuses(self, words, check, *given):
        with self.assertRaisesRegex(ValueError, words) as caught:
            check(CALL, *given)
        self.assertIn("all_to_all_single in process group 7: ", str(caught.exception))

    def test_rows_are_as_wide_as_their_own_tensor(self):
        # An expert that sends nothing has an empty input: its width says nothing of the output.
        self.assertEqual(arguments.splits(CALL, "output", E(6, 4, 5), [3, 0, 3]), [60, 0, 60])
        self.assertEqual(arguments.splits(CALL, "input", E(0, 8), [0, 0, 0]), [0, 0, 0])
        self.assertEqual(arguments.splits(CALL, "input", E(0), [0, 0, 0]), [0, 0, 0])
        self.assertEqual(arguments.splits(CALL, "input", E(6, 2), []), [4, 4, 4])
        self.assertEqual(arguments.splits(CALL, "input", E(0, 7), []), [0, 0, 0])

    def test_splits_that_do_not_fit(self):
        self.refuses("3 equal parts along its first dimension", arguments.splits, "output",
                     E(2, 3), [])
        self.refuses("3 equal parts", arguments.splits, "output", torch.tensor(1.0), [])
        for given in ([1, 1], [1, 1, 1, 1], [1, 1, 1], [5, -1, 0]):
            self.refuses("none below 0", arguments.splits, "output", E(4, 3), given)
        arguments.own_block(CALL, [9, 2, 0], [0, 2, 9])
        self.refuses("process 1 sends itself 8 elements and gets 2", arguments.own_block,
                     [8, 8, 8], [2, 2, 2])

    def test_sizes_and_types_of_lists(self):
        four = [E(4), E(2, 2), E(4)]
        arguments.blocks(CALL, four, "outputs")
        arguments.same_size(CALL, four, "output", E(4), "the input")
        arguments.own_size(CALL, [E(9), E(4), E(1)], "output", E(4), "the input")
        self.refuses("2 outputs: there must be one for each of 3", arguments.blocks, four[:2],
                     "outputs")
        self.refuses(r"output 2 is float32\[5\]: .* the input, float32\[4\]", arguments.same_size,
                     [E(4), E(4), E(5)], "output", E(4), "the input")
        self.refuses("input 1, this process's own", arguments.own_size, [E(1), E(5), E(1)],
                     "input", E(1), "the output")
        self.refuses("must have the same type", arguments.one_type,
                     [E(4), E(4, dtype=torch.float64)])
        self.refuses("2 outputs for 1 inputs", arguments.pairs, four[:2], four[:1])
        arguments.whole_and_part(CALL, E(3, 4), E(4), ("output", "input"))
        for whole in (E(13), E(12, dtype=torch.int32)):
            self.refuses("type|3 times the input's elements", arguments.whole_and_part, whole,
                         E(4), ("output", "input"))

    def test_how_many_there_are(self):
        tensor = E(1)
        self.assertIs(arguments.one(CALL, [tensor]), tensor)
        self.refuses("one tensor of each process, not 0", arguments.one, [])
        self.refuses("one list of outputs of each process, not 2", arguments.one, [[], []],
                     "one list of outputs")
        self.refuses("no tensor", arguments.some, [])
        arguments.none(CALL, [], "outputs", 0)
        self.refuses("only the root, process 0, has outputs, and this is process 1",
                     arguments.none, [[tensor]], "outputs", 0)

    def test_roots_peers_and_tags(self):
        arguments.root(CALL, 2, 0)
        for number, tensor in ((-1, 0), (3, 0), (0, 1), (0, -1)):
            self.refuses("root", arguments.root, number, tensor)
        arguments.peer(CALL, 2, 2**32 - 1)
        for peer, tag in ((-1, 0), (3, 0), (1, 0), (0, -1), (0, 2**32)):
            self.refuses("process is|tag is", arguments.peer, peer, tag)

    def test_tensors_that_share_memory(self):
        memory = torch.zeros(100)
        table = memory.view(10, 10)

        def met(*sets):
            return arguments.met([tensors if isinstance(tensors, list) else [tensors]
                                  for tensors in sets])

        self.assertEqual(met(memory, memory), {0, 1})
        self.assertEqual(met(memory[:50], memory[50:]), set())
        self.assertEqual(met(memory[60:], E(5), memory[:61]), {0, 2})
        self.assertEqual(met(memory, memory[3:4], memory[90:]), {0, 1, 2})
        self.assertEqual(met(memory[:10], memory[5:5]), set())
        # Columns lie between each other's elements.
        self.assertEqual(met(table[:, 0], table[:, 1]), {0, 1})
        self.assertEqual(met(table[0], table[1], table.t()), {0, 1, 2})
        # In place: an input that is a part of its own output.
        self.assertEqual(met([memory[:40], memory[10:20]], [memory[40:], memory[50:60]]), set())
        self.assertEqual(met([memory[:40], memory[50:60]], [memory[40:], memory[50:60]]), {0, 1})


if __name__ == "__main__":
    unittest.main()
