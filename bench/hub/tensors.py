"""The tensor sets that ./x bench hub exchanges, and the bytes that each system must move for them."""

from __future__ import annotations

import models
from bench.transfer import model_tensors

FLOAT = 4
MODELS = ("AlexNet", "VGG16", "Inception-v3", "ResNet-50", "LSTM", "GRU", "FCN-5")
STATE_TENSORS = {"sgd": 1, "adam": 2}


def elements_of(model: str) -> list[int]:
    """Elements of each parameter: those of the RDMA paper's table, and ResNet-50's for ImageNet."""
    if model == "ResNet-50":
        return [parameter.numel() for parameter in models.load("resnet50", "imagenet").model.parameters()]
    return [size // FLOAT for size in model_tensors.tensor_bytes(model)]


def bytes_an_element(system: str, workers: int, optimizer: str) -> float:
    """Bytes that all processes together read and write for an element in an exchange, by the system's own scheme.

    Each array counts once for every pass that reads it and once for every pass that writes it, as in STREAM. What the
    kernel's sockets hold under way is not counted.
    """
    update = 8 + 8 * STATE_TENSORS[optimizer]  # weights and state, read and written
    if system == "tesser-network":
        # Gradients leave, are put into the hub's memory and read there; weights leave and are put into the worker's.
        return 5 * FLOAT * workers + update
    if system.startswith("tesser-"):
        # Gradients are read where the workers have them; the weights are those that all workers see.
        return FLOAT * workers + update
    if system == "gloo":
        # A ring: each worker sends and receives 2 (N - 1) / N of the tensors, and adds half of that to its own. Each
        # then updates weights of its own; the update reads the gradients and writes their average.
        hops = 2 * FLOAT * 2 * (workers - 1)
        additions = 3 * FLOAT * (workers - 1)
        return hops + additions + workers * (2 * FLOAT + update)
    # Copied into the server's buffers; the first copied to the sum and the others added to it; the update; copied out.
    copies = 2 * 2 * FLOAT * workers
    return copies + 2 * FLOAT + 3 * FLOAT * (workers - 1) + FLOAT + update


def memory_bytes(system: str, elements: int, workers: int, optimizer: str) -> int:
    """About what a measurement takes."""
    state = STATE_TENSORS[optimizer]
    arrays = {
        "tesser-dedicated": workers + (workers > 2) + 1 + state,
        "tesser-colocated": workers + (workers > 2) + 1 + state,
        "tesser-network": 3 * workers + (workers > 2) + 1 + state,
        "gloo": workers * (2 + state),
        "wide": 3 * workers + 2 + state,
    }
    return int(FLOAT * elements * arrays[system] * 1.05) + workers * 100 * 2**20
