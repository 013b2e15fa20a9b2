# SPDX-License-Identifier: BSD-3-Clause
"""same.py FOLDER AGAIN WORLD LAYOUT...: what train.py left in FOLDER: the weights of all
ranks on gradwire are the same bits, and those of the second run in AGAIN; the loss of each step is
Gloo's within rounding."""
import os
import sys

import torch


def main():
    folder, again, world, layouts = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    for layout in layouts:
        def result(backend, rank, where=folder):
            return torch.load(os.path.join(where, "%s-%s-%d.pt" % (backend, layout, rank)))

        first = result("gradwire", 0)
        for rank in range(world):
            for where in (folder, again):
                other = result("gradwire", rank, where)
                assert torch.equal(first["weights"], other["weights"]), (layout, rank, where)
                assert first["losses"] == other["losses"], (layout, rank, where)
        gloo = result("gloo", 0)
        ours, theirs = torch.tensor(first["losses"]), torch.tensor(gloo["losses"])
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        assert first["losses"][-1] < first["losses"][0], first["losses"]
        print("%s: %d ranks, two runs, equal bits; loss off Gloo's by %.1e at most" % (
            layout, world, (ours - theirs).abs().max().item()))


if __name__ == "__main__":
    main()
