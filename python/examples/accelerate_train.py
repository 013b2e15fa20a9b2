#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Training by Hugging Face's Accelerate on gradwire.

    pip install accelerate
    torchrun --nproc-per-node 2 python/examples/accelerate_train.py

Accelerate makes no process group of a backend whose name it does not know, but uses the one that
is there: so init_process_group() comes first, and Accelerator(cpu=True) after it.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--backend", default="gradwire")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()

    dist.init_process_group(options.backend)
    from accelerate import Accelerator  # pylint: disable=import-outside-toplevel

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    assert accelerator.num_processes == dist.get_world_size(), accelerator.state

    torch.manual_seed(7)
    inputs = torch.randn(2048, 32)
    targets = torch.tanh(inputs @ torch.randn(32, 1))
    data = torch.utils.data.TensorDataset(inputs, targets)
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    for epoch in range(1, options.epochs + 1):
        losses = []
        for batch, wanted in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(batch), wanted)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach()).mean())
        accelerator.print(f"epoch {epoch}: loss {torch.stack(losses).mean().item():.6f}")
    accelerator.wait_for_everyone()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
