"""A small convolutional network for handwritten digits: everything one training step is made of."""

import torch
from torch import nn

import tesser
from tesser.schedules import OneCycle

EPOCHS = 10
TRAINED, BATCH = 8500, 50


def block(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


class DigitNetwork(nn.Module):
    """uint8 images [B, 1, 28, 28] -> logits [B, 10]."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            *block(1, 16),
            *block(16, 16),
            nn.MaxPool2d(2),
            *block(16, 32),
            *block(32, 32),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)
        )

    def forward(self, images):
        return self.classifier(self.features(images.float() / 255))


def forward(model, batch):
    logits = model(batch["images"])
    return {
        "loss": nn.functional.cross_entropy(logits, batch["labels"]),
        "accuracy": (logits.argmax(1) == batch["labels"]).float().mean(),
    }


def loss(model, batch):
    results = forward(model, batch)
    return results["loss"], {"accuracy": results["accuracy"]}


def example(samples):
    return {
        "images": torch.zeros(samples, 1, 28, 28, dtype=torch.uint8),
        "labels": torch.zeros(samples, dtype=torch.int64),
    }


def step():
    torch.manual_seed(0)
    model = DigitNetwork()
    return tesser.Step(
        model,
        loss,
        example(BATCH),
        torch.optim.AdamW(model.parameters(), weight_decay=0.05),
        schedule=OneCycle(maximum=4e-3, initial=4e-4, final=4e-6, steps=EPOCHS * (TRAINED // BATCH)),
        forward=forward,
        forward_batch=example(500),
        name="mnist",
    )
