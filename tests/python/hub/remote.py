"""python -m tests.python.hub.remote HUB RANK FILE: one replica of two of a small training; its weights go to FILE."""

from __future__ import annotations

import sys

import torch

import tesser.hub
from tests.python.hub.training import NONCE, TRAININGS

STEPS = 6


def main(url: str, rank: int, file: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    training = TRAININGS["adamw in groups, cosine"]
    model = training.model()
    optimizer = training.optimizer(model)
    schedule = training.schedule(optimizer)
    model, optimizer = tesser.hub.wrap(
        model, optimizer, hub=url, job="remote", nonce=NONCE, rank=rank, replicas=2, one_machine=False
    )
    for step in range(STEPS):
        optimizer.zero_grad()
        training.loss(model, step, rank).backward()
        optimizer.step()
        schedule.step()
    torch.save(model.state_dict(), file)
    optimizer.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
