"""A plain PyTorch DistributedDataParallel script as a job of the platform: nothing in it is tesser's.

What the platform gives it is in the environment: rank and size for torch.distributed, and directories for checkpoints,
which survive restarts, and results.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH, SAMPLES = 64, 4096


def data(rank, size):
    """This process's part of a regression that every process makes alike."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(SAMPLES, 16, generator=generator)
    targets = torch.sin(2 * inputs[:, :1]) + inputs[:, 1:2] * inputs[:, 2:3]
    return inputs[rank::size], targets[rank::size]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    arguments = parser.parse_args()
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    checkpoint = Path(os.environ.get("CHECKPOINT_DIR", ".")) / "state.pt"
    results = Path(os.environ.get("RESULT_DIR", "."))

    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    first = 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"]
        if rank == 0:
            print(f"goes on after epoch {first}", flush=True)

    inputs, targets = data(rank, size)
    part = BATCH // size
    steps = len(inputs) // part
    for epoch in range(first, arguments.epochs):
        for step in range(steps):
            chosen = slice(step * part, (step + 1) * part)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs[chosen]), targets[chosen])
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"step {(epoch + 1) * steps}/{arguments.epochs * steps} loss {loss.item():.6f}", flush=True)
            # Written beside and renamed: a death at any moment leaves a complete one.
            partial = checkpoint.with_suffix(".partial")
            torch.save(
                {"epoch": epoch + 1, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, partial
            )
            partial.replace(checkpoint)
    distributed.barrier()
    if rank == 0:
        torch.save(model.module.state_dict(), results / "model.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
