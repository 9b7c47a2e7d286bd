"""The tensor sets of the RDMA paper's six models: what a worker sends of each, in bytes a variable.

The paper's table has megabytes and numbers of variables; models/ has the shapes that come to exactly these.
"""

from __future__ import annotations

import models

FLOAT = 4
# Name in the paper's table: model and size in models/.
MODELS = {
    "AlexNet": ("alexnet", "paper"),
    "Inception-v3": ("inception_v3", "paper"),
    "VGG16": ("vgg16", "paper"),
    "LSTM": ("rnn", "lstm"),
    "GRU": ("rnn", "gru"),
    "FCN-5": ("fcn5", "paper"),
}
GATES = {"LSTM": 4, "GRU": 3}


def tensor_bytes(name: str) -> list[int]:
    """Bytes of each variable, in the model's order.

    A recurrent layer has a variable for each gate's weights and one bias a gate, where PyTorch stacks the gates and has
    two biases.
    """
    model, size = MODELS[name]
    sizes = []
    for parameter_name, parameter in models.load(model, size).model.named_parameters():
        if "bias_hh" in parameter_name:
            continue
        parts = GATES[name] if parameter_name.startswith("recurrent.") else 1
        sizes += [parameter.numel() // parts * FLOAT] * parts
    return sizes
