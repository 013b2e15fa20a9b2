#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Training by Lightning on gradwire.

    pip install lightning
    torchrun --nproc-per-node 2 python/examples/lightning_train.py

DDPStrategy passes the backend's name on to torch, which finds it by the package's entry point.
"""

import argparse
import os

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn


class Model(lightning.LightningModule):
    """Learns tanh of a random projection: [n, 32] to [n, 1]."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 1))

    def training_step(self, batch, _):
        """One step's loss; sync_dist averages what is shown over the processes."""
        inputs, wanted = batch
        loss = nn.functional.mse_loss(self.layers(inputs), wanted)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def on_train_epoch_end(self):
        """Prints what was logged, at rank 0."""
        loss = self.trainer.callback_metrics["loss"]
        self.print(f"epoch {self.current_epoch + 1}: loss {float(loss):.6f}")

    def configure_optimizers(self):
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--backend", default="gradwire")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()

    torch.manual_seed(7)
    inputs = torch.randn(2048, 32)
    targets = torch.tanh(inputs @ torch.randn(32, 1))
    data = torch.utils.data.TensorDataset(inputs, targets)
    loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=int(os.environ.get("WORLD_SIZE", "1")) //
        int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        strategy=DDPStrategy(process_group_backend=options.backend), max_epochs=options.epochs,
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False)
    trainer.fit(Model(), loader)


if __name__ == "__main__":
    main()
