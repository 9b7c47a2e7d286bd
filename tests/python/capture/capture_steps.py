"""Small training steps that together use everything capture knows."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tesser import Step, schedules


def _accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.argmax(-1) == labels).float().mean()


def _labels(classes: int, *shape: int) -> Tensor:
    labels = torch.randint(0, classes, shape)
    labels.view(-1)[0] = classes - 1
    return labels


class ConvolutionNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, groups=8),
            nn.GroupNorm(2, 8),
            nn.SiLU(),
        )
        self.drop = nn.Dropout2d(0.25)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.features(x)).mean((2, 3)))


def classify(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    logits = model(batch["images"])
    return F.cross_entropy(logits, batch["labels"]), {"accuracy": _accuracy(logits, batch["labels"])}


def convolution() -> Step:
    model = ConvolutionNet()
    return Step(
        model,
        classify,
        {"images": torch.randn(8, 3, 10, 10), "labels": _labels(5, 8)},
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
        schedule=schedules.StepDecay(rate=0.05, every=2, factor=0.5),
        forward=lambda model, batch: {"logits": model(batch["images"])},
    )


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        q, k, v = (
            part.view(batch, time, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, time, width)
        x = x + self.drop(self.project(y))
        return x + self.drop(self.mlp(self.norm2(x)))


class LanguageModel(nn.Module):
    def __init__(self, tokens: int = 17, width: int = 16, length: int = 8) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 2) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def next_token(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch["tokens"]).flatten(0, 1), batch["targets"].flatten())


def language_model() -> Step:
    model = LanguageModel()
    decayed = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0.0, "lr": 3e-3}], lr=1e-2)
    return Step(
        model,
        next_token,
        {"tokens": _labels(17, 4, 8), "targets": _labels(17, 4, 8)},
        optimizer,
        schedule=[schedules.warmup_cosine(1e-2, 2, 6), schedules.Constant(3e-3)],
        clip_norm=0.5,
        forward=lambda model, batch: model(batch["tokens"]),
        forward_batch={"tokens": _labels(17, 1, 8)},
        name="small language model",
    )


class Recurrent(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6, padding_idx=0)
        self.layer = layer
        self.head = nn.LazyLinear(11)
        self(torch.zeros(1, 2, dtype=torch.int64))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.embedding(tokens))[0])


def lstm() -> Step:
    model = Recurrent(nn.LSTM(6, 7, num_layers=2, batch_first=True, dropout=0.2))
    return Step(
        model,
        next_token,
        {"tokens": _labels(11, 4, 5), "targets": _labels(11, 4, 5)},
        torch.optim.Adam(model.parameters(), lr=1e-2, amsgrad=True, weight_decay=1e-3),
        clip_value=0.01,
        accumulate=2,
    )


def gru_both_ways() -> Step:
    model = Recurrent(nn.GRU(6, 5, batch_first=True, bidirectional=True))
    return Step(
        model,
        next_token,
        {"tokens": _labels(11, 3, 4), "targets": _labels(11, 3, 4)},
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5, dampening=0.2),
        clip_norm=0.05,
        clip_norm_type=float("inf"),
    )


class InPlace(nn.Module):
    """Writes through views, a running average of its own, constants, a frozen layer and an unused one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 4)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.unused = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("average", torch.zeros(6))
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 6), persistent=False)
        self.mask = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])  # a plain tensor, no buffer

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x) + self.frozen(x)
        x[:, 0] = 0
        x[:, 1:3] += 1.0
        x.mul_(self.scale)
        x = F.relu(x, inplace=True)
        with torch.no_grad():
            self.average.mul_(0.9).add_(x.mean(0), alpha=0.1)
        y = torch.zeros_like(x)
        y[:, ::2] = x[:, 1::2]
        x = self.norm(x + y + self.average) * self.mask
        return self.second(x * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) + torch.tensor(0.25))


def in_place() -> Step:
    model = InPlace()
    model.average = model.average  # still the buffer

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        y = model(batch["x"])
        weight = torch.where(batch["keep"], 1.0, 0.0)
        lost = ((y - batch["y"]) ** 2).mean(1)
        return (lost * weight).sum() / weight.sum().clamp(min=1), {
            "kept": batch["keep"].sum(),
            "largest": y.abs().amax(),
        }

    return Step(
        model,
        loss,
        {"x": torch.randn(6, 6), "y": torch.randn(6, 4), "keep": torch.ones(6, dtype=torch.bool)},
        torch.optim.SGD(model.parameters(), lr=0.05, maximize=False, weight_decay=0.1),
        accumulate=3,
        clip_value=0.5,
        clip_norm=1.0,
    )


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True, dropout=0.1)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.head(self.layer(x, src_key_padding_mask=padding))


def encoder() -> Step:
    model = Encoder()
    # The gradient of the keys' bias is zero but for rounding, which a smaller eps would make steps of.
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, eps=1e-5)
    padding = torch.zeros(3, 5, dtype=torch.bool)
    return Step(
        model,
        lambda model, batch: F.mse_loss(model(batch["x"], torch.arange(5) > batch["length"][:, None]), batch["y"]),
        {"x": torch.randn(3, 5, 8), "y": torch.randn(3, 5, 3), "length": torch.full((3,), 5) + padding.sum(1)},
        optimizer,
        schedule=torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=20, cycle_momentum=False),
        forward=lambda model, batch: model(batch["x"], torch.arange(5) > batch["length"][:, None]),
    )


class UpDown(nn.Module):
    """Convolutions down and up, joined; indexing, sorting and reductions of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(4, 4, 2, stride=2)
        self.merge = nn.Conv2d(10, 3, 1)
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(3, 3) * 0.3), nn.Parameter(torch.ones(3))])

    def forward(self, x: Tensor) -> Tensor:
        low = F.leaky_relu(self.down(x), 0.1)
        high = self.up(low)
        wide = F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=False)
        y = self.merge(torch.cat([x, F.softplus(high), torch.sigmoid(wide)], 1))
        y = torch.einsum("bchw,cd->bdhw", y, self.weights[0]) * self.weights[1].view(3, 1, 1)
        y = F.avg_pool2d(F.pad(y, (1, 1, 1, 1)), 2)
        return y.flatten(2).softmax(-1).cumsum(-1).logsumexp(-1)


def up_down() -> Step:
    model = UpDown()

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        y = model(batch["x"])
        chosen = y.gather(1, batch["index"][:, None]).squeeze(1)
        loss = (
            F.smooth_l1_loss(chosen, batch["y"])
            + 0.1 * y.topk(2).values.std()
            + F.huber_loss(y.norm(dim=1), batch["y"])
        )
        return loss + 1e-3 * sum(weight.pow(2).sum() for weight in model.parameters()), {"spread": y.max() - y.min()}

    return Step(
        model,
        loss,
        {"x": torch.randn(2, 2, 8, 8), "index": _labels(3, 2), "y": torch.randn(2)},
        torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.8, 0.95), eps=1e-6),
    )


class Noisy(nn.Module):
    """Every kind of randomness, and attention with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.1 * torch.randn_like(x) + 0.1 * torch.rand(x.shape)
        x = F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], dropout_p=0.2 if self.training else 0.0)[
            :, 0
        ]
        x = F.alpha_dropout(F.selu(self.first(x)), 0.2, self.training)
        return self.second(x * torch.bernoulli(torch.full_like(x, 0.8)))


def noisy() -> Step:
    model = Noisy()
    return Step(
        model,
        lambda model, batch: F.binary_cross_entropy_with_logits(model(batch["x"]).mean(1), batch["y"]),
        {"x": torch.randn(3, 5, 4), "y": torch.rand(3, 2)},
        torch.optim.AdamW(model.parameters(), lr=1e-2, amsgrad=True),
    )


STEPS: dict[str, Callable[[], Step]] = {
    function.__name__: function
    for function in (convolution, language_model, lstm, gru_both_ways, in_place, encoder, up_down, noisy)
}
