#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradwire.torch: DDP with the hook against DDP without it, in processes of their own."""
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
import unittest

try:
    import torch
    import torch.distributed as dist
except ImportError:
    print("SKIP: torch is not installed")
    sys.exit(77)

from gradwire import GradwireError, Status
from gradwire.torch import GradwireState, allreduce_hook
from gradwire.torch.hook import _place
from support import FakeDaemons

STEPS = 5


def _model(rank):
    torch.manual_seed(rank)  # different on purpose: DDP broadcasts rank 0's
    return torch.nn.Sequential(
        torch.nn.Linear(40, 9000), torch.nn.ReLU(), torch.nn.Linear(9000, 30)
    )


def _train(rank, state, steps=STEPS):
    """Parameters after a few steps, through the hook if there is a state."""
    model = torch.nn.parallel.DistributedDataParallel(_model(rank), bucket_cap_mb=0.5)
    if state is not None:
        model.register_comm_hook(state, allreduce_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 40, generator=generator)).square().mean().backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def _process(body, rank, world, directory, paths, queue):
    try:
        dist.init_process_group(
            "gloo", init_method="file://" + directory + "/torch", rank=rank, world_size=world
        )
        torch.set_num_threads(1)
        queue.put((rank, body(rank, paths), None))
        dist.barrier()
    except Exception:
        queue.put((rank, None, traceback.format_exc()))


def run(body, daemons, world):
    """Runs ``body(rank, paths)`` in ``world`` processes; what each returned."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as directory:
        queue = context.Queue()
        processes = [
            context.Process(
                target=_process, args=(body, rank, world, directory, daemons.paths, queue)
            )
            for rank in range(world)
        ]
        for process in processes:
            process.start()
        results = {}
        try:
            for _ in range(world):
                rank, result, error = queue.get(timeout=300)
                if error is not None:
                    raise AssertionError("process %d: %s" % (rank, error))
                results[rank] = result
        finally:
            for process in processes:
                process.join(10)
                if process.is_alive():
                    process.kill()
                    process.join()
        return [results[rank] for rank in range(world)]


def train_both_ways(rank, paths):
    reference = _train(rank, None)
    with GradwireState(socket=paths[rank], members=1) as state:
        hooked = _train(rank, state)
        stats = state.stats()
    same = all(torch.equal(a, b) for a, b in zip(reference, hooked))
    moved = any(not torch.equal(a, b) for a, b in zip(reference, _model(0).parameters()))
    return same, moved, stats


def train_with_digests(rank, paths):
    with GradwireState(socket=paths[rank], members=1, digest=True) as state:
        _train(rank, state)
        return state.stats()["ops"]


def train_with_a_damaged_sum(rank, paths):
    """A bit is turned over on purpose in rank 1's third sum, before anybody looks at it."""
    state = GradwireState(socket=paths[rank], members=1, digest=True)
    wait = state._wait
    waits = []

    def damaging(work):
        wait(work)
        waits.append(work)
        if rank == 1 and len(waits) == 3:
            work._output.view(torch.int32)[7] ^= 1

    state._wait = damaging
    try:
        _train(rank, state)
    except RuntimeError as error:
        return str(error)
    finally:
        state.close()
    return "nothing was found"


def train_members(rank, paths):
    os.environ["LOCAL_WORLD_SIZE"] = "2"
    reference = _train(rank, None)
    with GradwireState(socket=paths[rank // 2]) as state:
        hooked = _train(rank, state)
        stats = state.stats()
    # Four gradients: gloo adds them in another order, so this is not bit for bit.
    close = all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(reference, hooked))
    return close, [t.numpy().tobytes() for t in hooked], stats


def shrink_after_a_siblings_death(rank, paths):
    """Rank 1 loses one of its two processes; what shrink() says to the other three."""
    os.environ["LOCAL_WORLD_SIZE"] = "2"
    state = GradwireState(socket=paths[rank // 2])
    if rank == 2:
        state.group.abort("a client process of rank 1 died")
        return None
    try:
        while True:
            state.group.check()
            time.sleep(0.01)
    except GradwireError:
        pass
    try:
        left = state.shrink(progress=rank, patience=30.0)
    except GradwireError as error:
        return error.code.name, error.text, error.__cause__.code.name
    return left.processes, left.world, left.progress


def wait_in_a_callback(rank, paths):
    """A future's callback waits for the next bucket's future."""
    with GradwireState(socket=paths[rank], members=1) as state:
        first, second = torch.full((8,), rank + 1.0), torch.full((9,), rank + 1.0)
        if rank == 1:
            dist.barrier()  # the other has its callback before these end
        futures = [state._reduce(index, tensor) for index, tensor in enumerate((first, second))]
        both = futures[0].then(lambda f: f.value().sum().item() + futures[1].wait().sum().item())
        if rank == 0:
            dist.barrier()
        return both.wait()


def abort_in_training(rank, paths):
    state = GradwireState(socket=paths[rank], members=1)
    outcome = "no error"
    if rank == 1:
        _model_and_first_broadcast(rank)
        time.sleep(0.3)
        state.group.abort("loss is NaN")
    else:
        model = _model_and_first_broadcast(rank)
        model.register_comm_hook(state, allreduce_hook)
        try:
            model(torch.ones(1, 40)).sum().backward()
        except RuntimeError as error:
            outcome = str(error)
    state.close()
    return outcome


def _model_and_first_broadcast(rank):
    return torch.nn.parallel.DistributedDataParallel(_model(rank))


def stall(rank, paths):
    state = GradwireState(socket=paths[rank], members=1, timeout=60.0)
    state.timeout = 0.3
    model = _model_and_first_broadcast(rank)
    model.register_comm_hook(state, allreduce_hook)
    outcome = "no error"
    if rank == 1:  # posts nothing, until it is told
        end = time.monotonic() + 60
        try:
            while time.monotonic() < end:
                state.group.check()
                time.sleep(0.01)
        except GradwireError as error:
            outcome = str(error)
    else:
        start = time.monotonic()
        try:
            model(torch.ones(1, 40)).sum().backward()
        except RuntimeError as error:
            outcome = str(error) if time.monotonic() - start < 30 else "too late"
    state.close()
    return outcome


def post_nothing(rank, paths):
    """Process 0 has no memory for a bucket, and catches that. Then both go on, one op each."""
    with GradwireState(socket=paths[rank], members=1, timeout=10.0) as state:
        tensor, allocate = torch.full((8,), rank + 1.0), state.client.allocate
        if rank == 0:
            def refused(_):
                raise GradwireError(Status.RESOURCE_EXHAUSTED, "no memory today")
            state.client.allocate = refused
        try:
            state._reduce(0, tensor).wait()
            outcome = "no error"
        except (GradwireError, RuntimeError) as error:
            outcome = str(error)
        state.client.allocate = allocate
        if rank == 0:
            # Its daemon has not told it yet.
            state.group.check = lambda: None
        state.shrink()
        return outcome, state._reduce(0, tensor).wait().tolist()


class Hook(unittest.TestCase):
    def test_two_processes_train_to_the_bits_that_ddp_alone_gives(self):
        with FakeDaemons(2) as daemons:
            for same, moved, stats in run(train_both_ways, daemons, 2):
                self.assertTrue(moved)
                self.assertTrue(same)
                self.assertGreater(stats["ops"], STEPS)  # several buckets
                self.assertEqual(stats["copies"], 2 * stats["ops"])
                self.assertEqual(stats["copied_bytes"], 2 * stats["bytes"])
                self.assertEqual(stats["library_copies"], 0)
                self.assertEqual(stats["failed"], 0)
                parameters = sum(p.numel() for p in _model(0).parameters())
                self.assertEqual(stats["bytes"], STEPS * 4 * parameters)
                self.assertGreater(stats["median_s"], 0)
                self.assertLessEqual(stats["median_s"], stats["p99_s"])

    def test_equal_sums_have_equal_digests(self):
        with FakeDaemons(2) as daemons:
            first, second = run(train_with_digests, daemons, 2)
        self.assertEqual(first, second)
        self.assertGreater(first, STEPS)

    def test_a_damaged_sum_is_found_by_its_digest_and_its_rank_named(self):
        with FakeDaemons(3) as daemons:
            for text in run(train_with_a_damaged_sum, daemons, 3):
                self.assertIn("the result of op 3 differs at rank 1", text)

    def test_two_ranks_of_two_members(self):
        with FakeDaemons(2) as daemons:
            results = run(train_members, daemons, 4)
        for rank, (close, parameters, stats) in enumerate(results):
            self.assertTrue(close)
            self.assertEqual(parameters, results[0][1])
            self.assertEqual((stats["rank"], stats["member"]), (rank // 2, rank % 2))
            self.assertEqual((stats["nranks"], stats["members"]), (2, 2))

    def test_a_callback_may_wait_for_another_buckets_future(self):
        with FakeDaemons(2) as daemons:
            self.assertEqual(run(wait_in_a_callback, daemons, 2), [17 * 1.5, 17 * 1.5])

    def test_an_abort_raises_with_its_reason(self):
        with FakeDaemons(2) as daemons:
            results = run(abort_in_training, daemons, 2)
        self.assertIn("loss is NaN", results[0])

    def test_the_lost_ones_sibling_raises_the_abort_and_the_others_go_on(self):
        with FakeDaemons(2) as daemons:
            results = run(shrink_after_a_siblings_death, daemons, 4)
        self.assertEqual(results[:2], [([0, 1], 2, 0)] * 2)
        code, text, cause = results[3]
        self.assertEqual((code, cause), ("ABORTED", "NOT_FOUND"))
        self.assertIn("a client process of rank 1 died", text)

    def test_a_process_that_cannot_post_ends_the_group_and_all_go_on(self):
        with FakeDaemons(2) as daemons:
            for text, mean in run(post_nothing, daemons, 2):
                self.assertIn("no memory today", text)
                self.assertEqual(mean, [1.5] * 8)

    def test_an_op_that_takes_too_long_ends_the_group(self):
        with FakeDaemons(2) as daemons:
            results = run(stall, daemons, 2)
        self.assertIn("all-reduce 1 of rank 0", results[0])
        self.assertIn("took longer than 0.3 s", results[1])


class Placement(unittest.TestCase):
    def test_processes_are_laid_out_host_by_host(self):
        self.assertEqual(_place(5, 8, None, None, None, 4), (1, 2, 1, 4))
        self.assertEqual(_place(5, 8, None, 8, None, None), (5, 8, 0, 1))
        self.assertEqual(_place(1, 2, 1, None, 0, 1), (1, 2, 0, 1))

    def test_the_environment_says_how_many_members(self):
        os.environ["LOCAL_WORLD_SIZE"] = "2"
        self.addCleanup(os.environ.pop, "LOCAL_WORLD_SIZE")
        self.assertEqual(_place(3, 4, None, None, None, None), (1, 2, 1, 2))
        os.environ["GRADWIRE_MEMBERS"] = "1"
        self.addCleanup(os.environ.pop, "GRADWIRE_MEMBERS")
        self.assertEqual(_place(3, 4, None, None, None, None), (3, 4, 0, 1))

    def test_what_does_not_divide_is_refused(self):
        with self.assertRaisesRegex(ValueError, "5 processes are not 2 ranks of 2 members"):
            _place(0, 5, None, None, None, 2)


if __name__ == "__main__":
    unittest.main()
