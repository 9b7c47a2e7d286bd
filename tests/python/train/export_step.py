"""A step whose state has all that an export can trip over, and what eager PyTorch makes of it."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from tesser import Step


class Net(nn.Module):
    """Tied weights, a module that is there twice, scalars, parameters without elements, names that need quoting,
    buffers of other types, one that state_dict() leaves out, weights in another order in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 6)
        self.shared = nn.Linear(6, 6)
        self.blocks = nn.ModuleDict(
            {"größe 1": nn.Sequential(self.shared, nn.Tanh()), "0": self.shared, "a-b": nn.LayerNorm(6)}
        )
        self.head = nn.Linear(6, 9, bias=False)
        self.head.weight = self.words.weight
        self.scales = nn.ParameterList([nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.ones(1, 6))])
        self.none = nn.Parameter(torch.empty(0, 6))
        self.image = nn.Conv2d(2, 6, 3, bias=False).to(memory_format=torch.channels_last)
        self.register_buffer("counts", torch.zeros(9, dtype=torch.int64))
        self.register_buffer("allowed", torch.tensor([True, False, True, True, True, True]))
        self.register_buffer("brief", torch.randn(6).bfloat16())
        self.register_buffer("scratch", torch.arange(6.0), persistent=False)
        self.frozen = nn.Parameter(torch.randn(6), requires_grad=False)

    def forward(self, ids: Tensor, image: Tensor) -> Tensor:
        with torch.no_grad():
            self.counts += F.one_hot(ids, 9).sum((0, 1))
        hidden = self.words(ids).mean(1) + self.image(image).mean((2, 3))
        hidden = self.blocks["0"](self.blocks["größe 1"](hidden)) * self.scales[0] + self.frozen
        hidden = torch.cat([self.blocks["a-b"](hidden), self.none]) * self.scales[1] * self.allowed
        return self.head(hidden + self.brief.float() * 0.1 + self.scratch * 0.01)


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch["ids"], batch["image"]), batch["y"])


def export_step() -> Step:
    torch.manual_seed(203)
    model = Net()
    batch = {
        "ids": torch.randint(0, 9, (5, 4)),
        "image": torch.randn(5, 2, 5, 5),
        "y": torch.randint(0, 9, (5,)),
    }
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return Step(model, loss, batch, torch.optim.SGD(trained, lr=0.1, momentum=0.9), name="export")


def differences(file: Path, steps: int) -> list[str]:
    """What an exported file has other than eager PyTorch after so many steps on the one batch."""
    step = export_step()
    for _ in range(steps):
        step.optimizer.zero_grad()
        loss(step.model, step.batch).backward()
        step.optimizer.step()
    expected, found = step.model.state_dict(), load_file(file)
    wrong = [f"the name {name}" for name in expected.keys() ^ found.keys()]
    for name in expected.keys() & found.keys():
        right, tensor = expected[name], found[name]
        if tensor.dtype != right.dtype or tensor.shape != right.shape:
            wrong.append(f"{name} is {tensor.dtype} {list(tensor.shape)}")
        elif not torch.allclose(tensor.double(), right.double(), rtol=1e-5, atol=2e-6):
            wrong.append(f"{name} is off by {(tensor.double() - right.double()).abs().max():.3g}")
    if not wrong:
        export_step().model.load_state_dict(found, strict=True)
    return wrong
