"""The training of step.py by PyTorch itself, in the same order of the images and with the same dropout as `tesser
train`.

Prints the events of docs/formats/events.md that a comparison needs, one JSON object a line. Images a second are
measured in an epoch of its own behind the training, with PyTorch's own dropout: the one made from tesser's numbers is a
slow reference in Python.
"""

import argparse
import contextlib
import json
import re
import time
from pathlib import Path

import numpy as np
import torch
from step import step

from tesser.data import order
from tesser.random import RandomMode

DATA = Path(__file__).parent / "data"


def peak_bytes():
    """The most memory this process has had so far."""
    return int(re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


def read(directory, names):
    return {name: torch.from_numpy(np.load(directory / f"{name}.npy", mmap_mode="c")) for name in names}


def train_epoch(made, data, epoch, seed, same_random_numbers=True):
    """One pass over the data; returns how many samples it trained on."""
    batch_size = len(next(iter(made.batch.values())))
    samples = len(next(iter(data.values())))
    batches = samples // batch_size
    visited = torch.from_numpy(order(seed, epoch, samples))[: batches * batch_size]
    for index, chosen in enumerate(visited.split(batch_size)):
        done = epoch * batches + index
        for group in made.optimizer.param_groups:
            group["lr"] = made.schedule.at(done)
        made.optimizer.zero_grad()
        with RandomMode(seed, done) if same_random_numbers else contextlib.nullcontext():
            loss, _ = made.loss(made.model, {name: tensor[chosen] for name, tensor in data.items()})
        loss.backward()
        made.optimizer.step()
    return batches * batch_size


@torch.no_grad()
def evaluate(made, data):
    """The forward function's scalars, averaged over the batches."""
    size = len(next(iter(made.forward_batch.values())))
    made.model.eval()
    results = [
        made.forward(made.model, dict(zip(data, parts, strict=True)))
        for parts in zip(*(tensor.split(size) for tensor in data.values()), strict=True)
    ]
    made.model.train()
    return {name: sum(float(result[name]) for result in results) / len(results) for name in results[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    imported = peak_bytes()
    made = step()
    train, check = read(DATA / "train", made.batch), read(DATA / "check", made.batch)
    for epoch in range(arguments.epochs):
        train_epoch(made, train, epoch, arguments.seed)
        print(json.dumps({"event": "evaluation", "epoch": epoch + 1, "results": evaluate(made, check)}), flush=True)
    peak = peak_bytes()

    begin = time.perf_counter()
    samples = train_epoch(made, train, arguments.epochs, arguments.seed, same_random_numbers=False)
    rate = samples / (time.perf_counter() - begin)
    end = {"samples_per_second": rate, "resident_peak_bytes": peak, "resident_after_imports_bytes": imported}
    print(json.dumps({"event": "end", **end}))


if __name__ == "__main__":
    main()
