# SPDX-License-Identifier: BSD-3-Clause
"""One process of a job that runs tests on the bases of PyTorch's own tests of FSDP and DTensor,
common_fsdp and common_dtensor of the installed package: their models, their parity checks, their
enumeration of placements. All processes run the same tests in one process group.

    common.py BACKEND [PATTERN]

Exits 1 if a test failed, and 3 if none ran."""
import datetime
import fnmatch
import itertools
import os
import sys
import unittest

import torch
import torch.distributed as dist
from torch.distributed._composable import replicate
from torch.distributed.fsdp import ShardingStrategy, fully_shard
from torch.distributed.tensor import DeviceMesh, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._internal import common_fsdp
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.distributed._tensor import common_dtensor

BACKEND = sys.argv[1]
TIMEOUT_S = 60


class Fsdp(TestCase, common_fsdp.FSDPTestMixin):
    """FSDP1 against DDP by FSDPTest's parity check, and fully_shard against replicate."""

    world_size = int(os.environ["WORLD_SIZE"])
    rank = int(os.environ["RANK"])

    @property
    def process_group(self):
        return dist.distributed_c10d._get_default_group()

    def parity(self, model, **settings):
        self.run_subtests(
            {"sharding_strategy": [ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP,
                                   ShardingStrategy.NO_SHARD],
             "use_orig_params": [False, True]},
            self._test_fsdp_parity, model_class=model,
            fsdp_init_mode=common_fsdp.FSDPInitMode.RECURSIVE,
            device_init_mode=common_fsdp.DEVICEInitMode.DEVICE_BEFORE, num_iters=2,
            device_id=torch.device("cpu"), **settings)

    def test_nested_wrapped_module(self):
        self.parity(common_fsdp.NestedWrappedModule)

    def test_always_wrapped_module(self):
        self.parity(common_fsdp.AlwaysWrapNestedWrappedModule)

    def test_transformer_with_shared_parameters(self):
        self.parity(common_fsdp.TransformerWithSharedParams)

    def test_fully_shard_is_replicate(self):
        """Losses and shards of fully_shard, on one and on two dimensions, beside replicate's."""
        meshes = [dist.init_device_mesh("cpu", (self.world_size,))]
        if self.world_size % 2 == 0:
            meshes.append(dist.init_device_mesh("cpu", (2, self.world_size // 2),
                                                mesh_dim_names=("replicate", "shard")))
        for mesh, reshard in itertools.product(meshes, (True, False)):
            torch.manual_seed(42)
            model = common_fsdp.MLPStack(16)
            reference = common_fsdp.MLPStack(16)
            reference.load_state_dict(model.state_dict())
            replicate(reference)
            for layer in model:
                fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
            fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
            optims = [torch.optim.Adam(m.parameters(), lr=1e-2) for m in (reference, model)]
            torch.manual_seed(43 + self.rank)
            for _ in range(4):
                inputs = torch.randn(8, 16)
                losses = []
                for module, optim in zip((reference, model), optims):
                    optim.zero_grad()
                    losses.append(module(inputs).sum())
                    losses[-1].backward()
                    optim.step()
                self.assertEqual(losses[0], losses[1])
            common_fsdp.check_sharded_parity(self, reference, model)


class Dtensor(TestCase, common_dtensor.DTensorTestMixin):
    """Ops on every placement that DTensorConverter makes, redistribution, tensor parallelism."""

    world_size = int(os.environ["WORLD_SIZE"])
    rank = int(os.environ["RANK"])

    def setUp(self):
        super().setUp()
        torch.manual_seed(7)  # the same tensors on every process

    def test_pointwise(self):
        mesh = self.build_device_mesh()
        a, b = torch.randn(12, 8), torch.randn(12, 8)
        for op in (torch.add, torch.mul, torch.sub, torch.maximum):
            self._test_op(mesh, op, a, b)
        for op in (torch.exp, torch.relu, torch.sigmoid, torch.neg):
            self._test_op(mesh, op, a)

    def test_matrices(self):
        mesh = self.build_device_mesh()
        self._test_op(mesh, torch.mm, torch.randn(12, 8), torch.randn(8, 16))
        self._test_op(mesh, torch.bmm, torch.randn(4, 8, 5), torch.randn(4, 5, 12))
        self._test_op(mesh, torch.addmm, torch.randn(16), torch.randn(12, 8), torch.randn(8, 16))

    def test_reductions(self):
        mesh = self.build_device_mesh()
        data = torch.randn(12, 8, 5)
        for op in (torch.sum, torch.mean, torch.amax, torch.amin):
            for dim in (0, 1, 2, -1):
                self._test_op(mesh, op, data, dim)
        self._test_op(mesh, torch.softmax, data, -1)
        self._test_op(mesh, torch.nn.functional.layer_norm, data, (5,))
        self._test_op(mesh, torch.linalg.vector_norm, data)

    def test_views(self):
        mesh = self.build_device_mesh()
        data = torch.randn(24, 8)
        self._test_op(mesh, lambda x: x.transpose(0, 1), data)
        self._test_op(mesh, lambda x: x.reshape(8, 3, 8), data)
        self._test_op(mesh, lambda x, y: torch.cat((x, y), dim=1), data, torch.randn(24, 3))
        self._test_op(mesh, lambda x: x[:, 2:7], data)

    def test_redistribution(self):
        """From every placement to every other, on one and on two dimensions, sizes that the
        processes do not divide among them."""
        meshes = [self.build_device_mesh()]
        if self.world_size % 2 == 0:
            meshes.append(DeviceMesh("cpu", torch.arange(self.world_size).reshape(2, -1)))
        for mesh, rows in itertools.product(meshes, (12, 7, 3, 1)):
            data = torch.randn(rows, 5)
            choices = (Replicate(), Shard(0), Shard(1))
            for before in itertools.product(choices, repeat=mesh.ndim):
                placed = distribute_tensor(data, mesh, before)
                self.assertEqual(placed.full_tensor(), data, rtol=0, atol=0)
                for after in itertools.product(choices, repeat=mesh.ndim):
                    moved = placed.redistribute(mesh, after)
                    self.assertEqual(moved.full_tensor(), data, rtol=0, atol=0)
            part = common_dtensor.DTensor.from_local(data * (self.rank + 1), mesh,
                                                     [Partial()] * mesh.ndim)
            total = data * sum(range(1, self.world_size + 1))
            for after in itertools.product(choices, repeat=mesh.ndim):
                self.assertEqual(part.redistribute(mesh, after).full_tensor(), total)

    def test_tensor_parallel_mlp(self):
        mesh = self.build_device_mesh()
        model, parallel = (common_dtensor.MLPModule("cpu") for _ in range(2))
        parallelize_module(parallel, mesh, {"net1": ColwiseParallel(), "net2": RowwiseParallel()})
        optims = [torch.optim.SGD(m.parameters(), lr=0.25) for m in (model, parallel)]
        for _ in range(3):
            inputs = torch.rand(20, 10)
            losses = []
            for module, optim in zip((model, parallel), optims):
                optim.zero_grad()
                output = module(inputs)
                losses.append(output.square().mean())
                losses[-1].backward()
                optim.step()
            self.assertEqual(losses[0], losses[1])
        for one, other in zip(model.parameters(), parallel.parameters()):
            self.assertEqual(one, other.full_tensor())

    def test_tensor_parallel_transformer(self):
        mesh = self.build_device_mesh()
        for sequence_parallel in (False, True):
            args = common_dtensor.ModelArgs(dropout_p=0.0)
            torch.manual_seed(5)
            model = common_dtensor.Transformer(args)
            torch.manual_seed(5)
            parallel = common_dtensor.Transformer(args)
            parallel = common_dtensor.Transformer.parallelize(
                parallel, mesh, sequence_parallel, local_output_for_attn=True)
            tokens = torch.randint(args.vocab_size, (4, 16))
            losses = []
            # DTensor has no placements for the CPU's fused attention.
            with sdpa_kernel(SDPBackend.MATH):
                for module in (model, parallel):
                    losses.append(module(tokens).sum())
                    losses[-1].backward()
            self.assertEqual(losses[0], losses[1])
            grads = {name: p.grad for name, p in model.named_parameters()}
            for name, p in parallel.named_parameters():
                grad = p.grad
                if isinstance(grad, common_dtensor.DTensor):
                    grad = grad.full_tensor()
                self.assertEqual(grad, grads[name], msg=name)


def main():
    pattern = sys.argv[2] if len(sys.argv) > 2 else "*"
    if BACKEND != "gloo":
        import gradwire.torch  # noqa: F401
    torch.set_num_threads(1)
    dist.init_process_group(BACKEND, timeout=datetime.timedelta(seconds=TIMEOUT_S))
    loader = unittest.TestLoader()
    tests = unittest.TestSuite()
    for case in (Fsdp, Dtensor):
        for name in fnmatch.filter(loader.getTestCaseNames(case), pattern):
            tests.addTest(case(name))
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(tests)
    sys.stdout.flush()
    if not result.failures and not result.errors:
        dist.destroy_process_group()
    os._exit(1 if result.failures or result.errors else 0 if result.testsRun else 3)


if __name__ == "__main__":
    main()
