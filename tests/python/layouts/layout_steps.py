"""Steps in which kernels that read memory as it lies get tensors that do not lie row-major."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

import tesser

BATCH = 5


class Attention(nn.Module):
    """Over the rows of channels-last maps (`rows`), or over their channels."""

    def __init__(self, rows: bool) -> None:
        super().__init__()
        self.rows = rows
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.parts = nn.ModuleList(nn.Conv2d(8, 8, 1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        query, key, value = (part(y) for part in self.parts)
        if not self.rows:
            query, key, value = (each.reshape(BATCH, 2, 4, 36) for each in (query, key, value))
            query, key = functional.normalize(query, dim=-1), functional.normalize(key, dim=-1)
        return functional.scaled_dot_product_attention(query, key, value)


class AttentionOfASum(nn.Module):
    """Most terms of the sum are transposed; its layout is that of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.terms = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        straight, *turned = (term(x) for term in self.terms)
        y = torch.relu(straight + turned[0].transpose(2, 3) + turned[1].transpose(2, 3))
        return functional.scaled_dot_product_attention(y, y, y)


class OfMatrices(nn.Module):
    """A function of square matrices that come out of a convolution."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.first(x) / 5 + torch.eye(6))


class Turned(nn.Module):
    """A determinant of transposed matrices: its gradient depends on how the matrix lay when it was captured."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x) / 5 + torch.eye(6)
        return torch.linalg.det(y.transpose(2, 3)) + torch.linalg.slogdet(y.mT)[1]


class Volume(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.volume = nn.Conv3d(8, 8, (1, 3, 3), padding=(0, 1, 1))
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.volume(self.first(x).unsqueeze(2)))


class FlatGroups(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.first(x).flatten(2)))


def padded_groups() -> nn.Module:
    """Padding between a GroupNorm and the convolution behind it, whose gradient comes channels-last."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.SiLU(), nn.ReflectionPad2d(1), nn.Conv2d(8, 8, 3)
    )


def groups_between_convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8)
    )


def groups_far_from_zero() -> nn.Module:
    """Channels-last, the kernel of group normalisation loses digits here."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8))
    nn.init.constant_(model[0].bias, 20.0)
    return model


def weight_norm() -> nn.Module:
    normed = nn.utils.parametrizations.weight_norm(nn.Conv2d(8, 8, 3, padding=1))
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), normed, nn.ReLU())


class Labels(nn.Module):
    """Class scores of each pixel, normalised by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return y - y.logsumexp(1, keepdim=True)


BODIES: dict[str, Callable[[], nn.Module]] = {
    "attention-rows": lambda: Attention(True),
    "attention-channels": lambda: Attention(False),
    "attention-sum": AttentionOfASum,
    "slogdet": lambda: OfMatrices(lambda y: torch.linalg.slogdet(y)[1]),
    "det": lambda: OfMatrices(torch.linalg.det),
    "det-turned": Turned,
    "matrix-exp": lambda: OfMatrices(torch.matrix_exp),
    "volume": Volume,
    "flat-groups": FlatGroups,
    "padded-groups": padded_groups,
    "groups": groups_between_convolutions,
    "groups-far": groups_far_from_zero,
    "weight-norm": weight_norm,
    "labels": Labels,
}


class Headed(nn.Module):
    def __init__(self, body: nn.Module, x: Tensor) -> None:
        super().__init__()
        self.body = body
        with torch.no_grad():
            features = body(x).flatten(1).shape[1]
        self.head = nn.Linear(features, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).flatten(1))


def step(kind: str) -> tesser.Step:
    torch.manual_seed(1)
    body = BODIES[kind]()
    x, y = torch.randn(BATCH, 3, 6, 6), torch.tensor([0, 1, 2, 3, 0])
    if kind == "labels":
        model: nn.Module = body

        def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
            return functional.nll_loss(model(batch["x"]), batch["y"].view(BATCH, 1, 1).expand(BATCH, 6, 6))
    else:
        model = Headed(body, x)

        def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
            return functional.cross_entropy(model(batch["x"]), batch["y"])

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return tesser.Step(model, loss, {"x": x, "y": y}, optimizer, name=f"layouts-{kind}")
