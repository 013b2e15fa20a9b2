# SPDX-License-Identifier: BSD-3-Clause
"""One process of a job whose sums travel in wire formats, compared bit by bit with the numpy
reference (test/reference/formats.py), residuals carried from step to step.

    formats.py hook MEMBERS      DDP's buckets by the hook
    formats.py calls MEMBERS     the backend's calls
    formats.py models MEMBERS    two models take turns on one hook's state
    formats.py little MEMBERS    gradient memory for the gradients, and not for all residuals
    formats.py hosts MEMBERS     a host that only sums is lost, and the job goes on without it
    formats.py without MEMBERS   the group has no formats
    formats.py shrunk MEMBERS    the last rank dies, and the others' residuals stay"""
import itertools
import os
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from gradwire import GradwireError
from gradwire.torch import GradwireState, allreduce_hook, wire_format
from reference import formats

SIZES = {"first": 100003, "second": 270001, "third": 5}
STEPS = 4
NUMPY = {torch.float32: np.float32, torch.bfloat16: np.uint16}


def values_of(name, count, step, process, dtype):
    """What a process gives, in fp32: blocks of many sizes, in one step an infinity and a NaN."""
    generator = np.random.default_rng([len(name), count, step, process])
    values = generator.standard_normal(count, np.float32)
    values *= np.float32(2.0) ** (np.arange(count) // 256 % 40 - 20).astype(np.float32)
    if step == 1 and count > 1000:
        values[700], values[count - 1] = np.inf, np.nan
    return formats.widen(formats.round_to_bf16(values)) if dtype == torch.bfloat16 else values


def folded(by_member):
    """What a rank's members come to, in member order."""
    total = by_member[0].copy()
    with np.errstate(all="ignore"):
        for values in by_member[1:]:
            total = (total + values).astype(np.float32)
    return total


def bits(tensor):
    return tensor.detach().contiguous().view(torch.int16 if tensor.dtype == torch.bfloat16
                                             else torch.int32).numpy().reshape(-1)


def check(tensor, expected, what):
    expected = formats.round_to_bf16(expected).view(np.int16) if (
        tensor.dtype == torch.bfloat16) else expected.view(np.int32)
    wrong = np.nonzero(bits(tensor) != expected)[0]
    assert not len(wrong), "%s: %d of %d elements differ, first %d: %x, not %x" % (
        what, len(wrong), len(expected), wrong[0], bits(tensor)[wrong[0]], expected[wrong[0]])


class Reference:
    """The hook's sums, of all ranks. Knows nothing of the hook but what it promises."""

    def __init__(self, wire, feeds_back, members):
        self.wire, self.feeds_back, self.members = wire, feeds_back, members
        self.residuals = {}  # by a bucket's parameters: [ranks]
        self.resets = 0

    def average(self, names, by_process):
        ranks = [folded(by_process[at:at + self.members])
                 for at in range(0, len(by_process), self.members)]
        names = tuple(names)
        before = self.residuals.get(names)
        for known in [known for known in self.residuals if known != names]:
            if set(known) & set(names):
                del self.residuals[known]
                self.resets += 1
        if before is not None and self.feeds_back:
            with np.errstate(all="ignore"):
                ranks = [(x + lost).astype(np.float32) for x, lost in zip(ranks, before)]
        if self.feeds_back:
            self.residuals[names] = [formats.residual(x, self.wire) for x in ranks]
        return formats.all_reduce(ranks, self.wire, len(by_process))


class Sums(torch.nn.Module):
    """Its gradients are what it is given."""

    def __init__(self, dtype):
        super().__init__()
        for name, size in SIZES.items():
            setattr(self, name, torch.nn.Parameter(torch.zeros(size, dtype=dtype)))

    def forward(self, values):
        return sum((getattr(self, name) * values[name]).sum() for name in SIZES)


def train(rank, world, members, wire, dtype, feeds_back):
    module = Sums(dtype)
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    seen = []

    def recording(state, bucket):
        seen.append([names[id(p)] for p in bucket.parameters()])
        return allreduce_hook(state, bucket)

    model = DistributedDataParallel(module, bucket_cap_mb=0.5)
    reference = Reference(wire, feeds_back, members)
    what = "%s of %s, %s feedback" % (wire, dtype, "with" if feeds_back else "without")
    with GradwireState(members=members, name=what.replace(" ", "-"), format=wire,
                       error_feedback=feeds_back) as state:
        model.register_comm_hook(state, recording)
        for step in range(STEPS):
            given = {name: [values_of(name, size, step, process, dtype)
                            for process in range(world)] for name, size in SIZES.items()}
            module.zero_grad()
            model({name: torch.from_numpy(given[name][rank]).to(dtype)
                   for name in SIZES}).backward()
            buckets, seen[:] = list(seen), []
            assert sorted(itertools.chain(*buckets)) == sorted(SIZES)
            for own in buckets:
                average = reference.average(
                    own, [np.concatenate([given[name][process] for name in own])
                                 for process in range(world)])
                ends = np.cumsum([SIZES[name] for name in own])
                for name, part in zip(own, np.split(average, ends[:-1])):
                    check(getattr(module, name).grad, part, "%s, step %d, %s" % (what, step, name))
        stats = state.stats()
    assert stats["format_ops"] == {wire: stats["ops"]} and not stats["fell_back"], stats
    if feeds_back and rank % members == 0:
        assert stats["residual_resets"] == reference.resets, (stats, reference.resets)
        error = stats["encoding_error"]
        assert error["ops"] > 0 and 0 < error["rms"] <= error["largest"], error
        if members == 1:
            assert 0.5 < error["largest_share"] <= 1 and error["rms_share"] < 1, error
    if rank == 0:
        print(what, "in", len(buckets), "buckets:", stats)


def hook(rank, world, members):
    for wire in ("bf16", "int8"):
        for feeds_back in (True, False):
            train(rank, world, members, wire, torch.float32, feeds_back)
    train(rank, world, members, "int8", torch.bfloat16, True)


def models(rank, world, members):
    """Each has the other's bucket numbers, and keeps what was lost of its own."""
    reference = Reference("int8", True, members)
    sizes = {"one": 5001, "other": 70001}
    parameters = {name: [torch.nn.Parameter(torch.zeros(size))] for name, size in sizes.items()}
    with GradwireState(members=members, name="models", format="int8") as state:
        for step, name in enumerate(["one", "other"] * STEPS):
            by_process = [values_of(name, sizes[name], 20 + step, process, None)
                          for process in range(world)]
            tensor = torch.from_numpy(by_process[rank].copy())
            state._reduce(0, tensor, parameters[name]).wait()
            check(tensor, reference.average([name], by_process), "step %d of %s" % (step, name))
        assert state.stats()["residual_resets"] == 0, state.stats()
        # Those of a model that is gone are given back with it.
        parameters.clear()
        last = [torch.nn.Parameter(torch.zeros(3))]
        state._reduce(0, torch.ones(3), last).wait()
        assert len(state._feedback._all()) == (1 if rank % members == 0 else 0)


def little(rank, world, members):
    """Buckets come one after the other until gradient memory has no room for one; then it gets that
    of residuals. The sums are right, those of buckets that kept their residuals too."""
    state = GradwireState(members=members, name="little", format="int8")
    # 2 MiB of gradient memory for each bucket, and 4 of residuals.
    size = 400000
    names = ["%02d" % at for at in range(20)]
    parameters = {name: [torch.nn.Parameter(torch.zeros(size))] for name in names}
    ones = torch.ones(size)
    for step in range(3):
        for index, name in enumerate(names):
            tensor = torch.full((size,), float(index + 1))
            state._reduce(index, tensor, parameters[name]).wait()
            assert torch.allclose(tensor, ones * (index + 1), rtol=1e-2), (step, index, tensor)
    stats = state.stats()
    assert stats["failed"] == 0 and stats["format_ops"] == {"int8": 3 * len(names)}, stats
    if rank % members == 0:
        given_up = [why for why in stats["fell_back"] if "is needed for the gradients" in why]
        assert given_up, stats
    if rank == 0:
        print(stats)
    state.close()


def given(count, world, members, dtype=torch.float32):
    """Inputs of all processes, and what each rank's members come to."""
    inputs = [values_of("call", count, 0, process, dtype) for process in range(world)]
    return inputs, [folded(inputs[at:at + members]) for at in range(0, world, members)]


def sums(group, rank, world, members, wire):
    """All-reduces, reduces and reduce-scatters within the context; others are as they were."""
    count = 50021
    inputs, ranks = given(count, world, members)
    whole, of_ranks = given(count * world, world, members)
    plain = sum(values.astype(np.float64) for values in inputs)
    with wire_format(wire):
        for op, divisor in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, world)):
            tensor = torch.from_numpy(inputs[rank].copy())
            dist.all_reduce(tensor, op, group=group)
            check(tensor, formats.all_reduce(ranks, wire, divisor), "all_reduce %s" % wire)
            out = torch.empty(count)
            dist.reduce_scatter_tensor(out, torch.from_numpy(whole[rank].copy()), op, group=group)
            block = slice(rank * count, (rank + 1) * count)
            # Of two ranks the order makes no difference.
            check(out, formats.fold([part[block] for part in of_ranks], wire, 0, divisor, False),
                  "reduce_scatter %s" % wire)
            tensor = torch.from_numpy(inputs[rank].copy())
            dist.reduce(tensor, 1, op, group=group)
            right = formats.fold(ranks, wire, 0, divisor, False) if rank == 1 else inputs[rank]
            check(tensor, right, "reduce %s" % wire)
        tensor = torch.from_numpy(inputs[rank].copy())
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group)
        check(tensor, np.maximum.reduce(inputs), "a maximum")
        tensor = torch.from_numpy(inputs[rank].astype(np.float64))
        dist.all_reduce(tensor, group=group)
        np.testing.assert_allclose(tensor.numpy(), plain, rtol=1e-9)
        parts = [torch.empty(count) for _ in range(world)]
        dist.all_gather(parts, torch.from_numpy(inputs[rank].copy()), group=group)
        for part, values in zip(parts, inputs):
            check(part, values, "all_gather")
    tensor = torch.from_numpy(inputs[rank].copy())
    dist.all_reduce(tensor, group=group)
    check(tensor, folded(ranks), "a sum outside of the context")


def scatters(rank, world, members):
    """The option for reduce-scatters of fp32 from a size on."""
    os.environ["GRADWIRE_REDUCE_SCATTER_FORMAT"] = "int8"
    os.environ["GRADWIRE_REDUCE_SCATTER_FORMAT_FROM"] = str(4 * 1000 * world)
    group = dist.new_group(backend="gradwire")
    del os.environ["GRADWIRE_REDUCE_SCATTER_FORMAT"]
    for count, wire in ((1000, "int8"), (999, None)):
        whole, of_ranks = given(count * world, world, members)
        out = torch.empty(count)
        dist.reduce_scatter_tensor(out, torch.from_numpy(whole[rank].copy()), group=group)
        block = slice(rank * count, (rank + 1) * count)
        ranks = [part[block] for part in of_ranks]
        right = formats.fold(ranks, wire, 0, 1, False) if wire else folded(ranks)
        check(out, right, "reduce_scatter of %d" % count)


def differs(rank, world):
    group = dist.new_group(backend="gradwire")
    try:
        with wire_format("int8" if rank else "bf16"):
            dist.all_reduce(torch.ones(1000), group=group)
    except GradwireError as error:
        for wire in ("bf16", "int8"):
            assert "all-reduce sum of 1000 fp32 as %s" % wire in str(error), error
        return
    raise AssertionError("no error of formats that differ")


def calls(rank, world, members):
    group = dist.new_group(backend="gradwire")
    for wire in ("bf16", "int8"):
        sums(group, rank, world, members, wire)
    scatters(rank, world, members)
    stats = gradwire.torch.stats()
    assert stats["format_ops"] == {"bf16": 6, "int8": 7}, stats
    assert sorted(stats["fell_back"].values()) == [1, 1, 1, 1], stats
    if members == 1:
        assert 0 < stats["encoding_error"]["largest_share"] <= 1, stats
    if rank == 0:
        print(stats)
    differs(rank, world)


def without(rank, world, members):
    why = "its group has no wire formats: transport.tiles of rank 0's daemon is \"never\""
    inputs, ranks = given(3000, world, members)
    with GradwireState(members=members, format="int8") as state:
        tensor = torch.from_numpy(inputs[rank].copy())
        state._reduce(0, tensor).wait()
        check(tensor, (folded(ranks) / np.float32(world)).astype(np.float32), "the hook's")
        assert state.stats()["fell_back"] == {"without format int8: " + why: 1}, state.stats()
    group = dist.new_group(backend="gradwire")
    with wire_format("bf16"):
        tensor = torch.from_numpy(inputs[rank].copy())
        dist.all_reduce(tensor, group=group)
    check(tensor, folded(ranks), "the backend's")
    stats = gradwire.torch.stats()
    assert stats["fell_back"] == {"without format bf16: " + why: 1}, stats


def shrunk(rank, world, members):
    count, parameters = 5001, [torch.nn.Parameter(torch.zeros(5001))]
    reference = Reference("int8", True, members)
    left, step = list(range(world)), 0
    state = GradwireState(members=members, format="int8")
    while step < 4:
        by_process = [values_of("shrunk", count, 10 + step, process, None) for process in left]
        if step == 2 and rank >= world - members and len(left) == world:
            os._exit(0)
        tensor = torch.from_numpy(by_process[left.index(rank)].copy())
        try:
            state._reduce(0, tensor, parameters).wait()
        except RuntimeError:
            now = state.shrink(progress=step)
            left, step = [left[process] for process in now.processes], now.progress
            reference.residuals["only",] = reference.residuals["only",][:len(left) // members]
            continue
        check(tensor, reference.average(["only"], by_process), "step %d of %d" % (
            step, len(left)))
        step += 1
    assert len(left) == world - members
    stats = state.stats()
    assert stats["residual_resets"] == 0 and not stats["fell_back"], stats
    state.close()
    if rank == 0:
        print(stats)
    os._exit(0)  # Gloo would wait for the dead


def hosts(rank, world, members):
    """Bits do not depend on who sums. After two steps the story ends the daemon of the host that
    only sums."""
    count, parameters = 300001, [torch.nn.Parameter(torch.zeros(300001))]
    reference = Reference("int8", True, members)
    state = GradwireState(members=members, format="int8", digest=True)
    assert state.stats()["nranks"] == world // members + 1, state.stats()

    def one(step):
        by_process = [values_of("folded", count, 10 + step, process, None)
                      for process in range(world)]
        tensor = torch.from_numpy(by_process[rank].copy())
        state._reduce(0, tensor, parameters).wait()
        check(tensor, reference.average(["only"], by_process), "step %d" % step)

    one(0)
    one(1)
    if rank == 0:
        open(os.path.join(os.environ["GRADWIRE_FOLDING_STORE"], "end"), "w").close()
    step = 2
    while True:
        before = dict(reference.residuals)
        try:
            one(step)
        except RuntimeError as error:
            reference.residuals = before
            assert "rank %d" % (world // members) in str(error), error
            break
        step += 1
    left = state.shrink(progress=step)
    assert left.world == world and left.progress == step, (left, step)
    one(step)
    one(step + 1)
    stats = state.stats()
    assert stats["nranks"] == world // members and stats["residual_resets"] == 0, stats
    state.close()


def main():
    what, members = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    globals()[what](dist.get_rank(), dist.get_world_size(), members)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
