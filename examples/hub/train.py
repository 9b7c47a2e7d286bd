"""Handwritten digits, trained by several processes through a parameter hub. What a script with one process does not
have is marked (1) to (3)."""

import argparse
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

import tesser.hub  # (1)

sys.path.insert(0, str(Path(__file__).parent.parent / "mnist"))
from prepare import DATA, read_idx

EPOCHS, BATCH = 3, 50  # images of a batch over all processes


class DigitNetwork(nn.Module):
    """uint8 images [B, 1, 28, 28] -> logits [B, 10]."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10)
        )

    def forward(self, images):
        return self.classifier(self.features(images.float() / 255))


def read():
    """Images and labels to train on, and to check with."""
    images = torch.from_numpy(read_idx(DATA / "mnist-t10k-images-idx3-ubyte.gz").copy())[:, None]
    labels = torch.from_numpy(read_idx(DATA / "mnist-t10k-labels-idx1-ubyte.gz").copy()).long()
    held_back = torch.arange(len(images)) % 20 < 3
    return (images[~held_back], labels[~held_back]), (images[held_back], labels[held_back])


@torch.no_grad()
def accuracy(model, images, labels):
    model.eval()
    right = sum((model(part).argmax(1) == label).sum() for part, label in zip(images.split(500), labels.split(500)))
    model.train()
    return right.item() / len(labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hub", default="colocated", help="http://HOST:PORT of tesser hub serve")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--checkpoint", type=Path, help="where rank 0 writes, and all go on from")
    arguments = parser.parse_args()
    rank, replicas = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    torch.manual_seed(0)
    train, check = read()
    steps_of_epoch = len(train[0]) // BATCH
    model = DigitNetwork()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    begin = 0
    if arguments.checkpoint and arguments.checkpoint.exists():
        saved = torch.load(arguments.checkpoint)
        begin = saved["epoch"]
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    model, optimizer = tesser.hub.wrap(model, optimizer, hub=arguments.hub, clip_norm=1.0)  # (2)
    if rank == 0:
        print(*optimizer.paths(), sep="\n", flush=True)

    for epoch in range(begin, arguments.epochs):
        began = time.perf_counter()
        order = torch.randperm(len(train[0]), generator=torch.Generator().manual_seed(epoch))
        torch.manual_seed(1000 * epoch + rank)  # dropout of its own
        for step in range(steps_of_epoch):
            chosen = order[step * BATCH : (step + 1) * BATCH][rank::replicas]  # (3) each process has its share
            loss = nn.functional.cross_entropy(model(train[0][chosen]), train[1][chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        seconds = time.perf_counter() - began
        if rank == 0:
            rate = steps_of_epoch * BATCH / seconds
            print(f"epoch {epoch + 1}: accuracy {accuracy(model, *check):.4f}, {rate:.0f} images/s", flush=True)
            if arguments.checkpoint:
                saved = {"epoch": epoch + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(saved, arguments.checkpoint)


if __name__ == "__main__":
    main()
