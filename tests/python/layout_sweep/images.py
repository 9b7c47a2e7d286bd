"""Calls on images, volumes and sequences of sizes at which kernels choose their vectorized and channels-last paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.python.layout_sweep.calls import Calls, Recording, differentiate

IMAGE, VOLUME, SEQUENCE = (2, 16, 9, 10), (2, 8, 5, 6, 7), (2, 16, 9)


def nets() -> Iterator[tuple[Callable[..., Tensor], tuple[int, ...]]]:
    """Functions with the shape they take."""
    shapes = {1: SEQUENCE, 2: IMAGE, 3: VOLUME}
    for dims, shape in shapes.items():
        channels = shape[1]
        convolution = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
        transposed = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[dims - 1]
        for options in (
            {"kernel_size": 3, "padding": 1},
            {"kernel_size": 1},
            {"kernel_size": 3, "stride": 2, "bias": False},
            {"kernel_size": 3, "dilation": 2, "padding": 2},
            {"kernel_size": 3, "groups": 4},
            {"kernel_size": 3, "groups": channels, "padding": 1},
        ):
            yield convolution(channels, 32 if options.get("groups") != channels else channels, **options), shape
            if "dilation" not in options:
                yield transposed(channels, 32 if options.get("groups") != channels else channels, **options), shape
        yield convolution(3, 8, 3), (2, 3, *shape[2:])
        yield (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[dims - 1](channels), shape
        yield (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[dims - 1](channels).eval(), shape
        yield (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)[dims - 1](channels, affine=True), shape
        yield nn.GroupNorm(4, channels), shape
        yield nn.GroupNorm(1, channels), shape
        yield nn.LayerNorm(shape[-1]), shape
        yield nn.LayerNorm(shape[1:]), shape
        yield (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)[dims - 1](2), shape
        yield (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)[dims - 1](3, stride=1, padding=1), shape
        yield (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)[dims - 1](2), shape
        yield (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)[dims - 1](3, stride=1, padding=1), shape
        yield (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)[dims - 1](3), shape
        yield (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)[dims - 1](1), shape
        yield (nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)[dims - 1](3), shape
        modes = ("nearest", "nearest-exact", ("linear", "bilinear", "trilinear")[dims - 1])
        for mode in (*modes, *(("bicubic",) if dims == 2 else ())):
            yield lambda x, mode=mode: F.interpolate(x, scale_factor=2, mode=mode), shape
            yield lambda x, mode=mode: F.interpolate(x, size=[4] * (x.dim() - 2), mode=mode), shape
        for mode in ("constant", "reflect", "replicate", "circular"):
            yield lambda x, mode=mode: F.pad(x, [1, 2] * (x.dim() - 2), mode=mode), shape
        for function in (
            F.gelu,
            F.silu,
            F.softplus,
            F.elu,
            F.hardswish,
            F.mish,
            F.leaky_relu,
            torch.tanh,
            F.logsigmoid,
        ):
            yield function, shape
        yield nn.PReLU(channels), shape
        yield lambda x: F.softmax(x, 1), shape
        yield lambda x: F.log_softmax(x, 1), shape
        yield lambda x: F.softmax(x, -1), shape
        yield lambda x: F.glu(x, 1), shape
        yield lambda x: torch.cat([x, 2 * x, x[:, :3]], 1), shape
        yield lambda x: torch.stack([x, 2 * x], 1), shape
        yield lambda x: x.mean((-1, -2)) if x.dim() > 3 else x.mean(-1), shape
        yield lambda x: x.sum(1) + x.amax(1) + x.var(1) + x.logsumexp(1) + x.prod(1) + x.norm(dim=1), shape
        yield lambda x: x.cumsum(1) + x.cumsum(-1), shape
        yield lambda x: x.flip(1) + x.roll(1, -1), shape
        yield lambda x: x.max(1).values + x.min(-1, keepdim=True).values.amax(1), shape
        yield lambda x: x.topk(3, 1).values.sum(1) + x.sort(1).values.sum(1), shape
    yield nn.PixelShuffle(2), IMAGE
    yield nn.PixelUnshuffle(3), (2, 4, 9, 12)
    yield nn.ChannelShuffle(4), IMAGE
    yield lambda x: F.unfold(x, 3), IMAGE
    yield lambda x: F.fold(F.unfold(x, 3), x.shape[2:], 3), IMAGE
    grid = torch.randn(2, 5, 6, 2).clamp(-0.9, 0.9)
    for mode in ("bilinear", "nearest", "bicubic"):
        yield lambda x, mode=mode: F.grid_sample(x, grid, mode=mode, align_corners=False), IMAGE
    grid_3d = torch.randn(2, 4, 5, 6, 3).clamp(-0.9, 0.9)
    yield lambda x: F.grid_sample(x, grid_3d, align_corners=False), VOLUME
    theta = torch.randn(2, 2, 3, requires_grad=True)
    yield lambda x: F.affine_grid(theta, x.shape, align_corners=False).sum() * x, IMAGE
    classes = torch.randint(0, 16, (2, 9, 10))
    for reduction in ("mean", "sum", "none"):
        yield lambda x, reduction=reduction: F.cross_entropy(x, classes, reduction=reduction), IMAGE
    yield lambda x: F.cross_entropy(x, classes, weight=torch.rand(16), ignore_index=2), IMAGE
    target = torch.rand(IMAGE)
    for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy_with_logits, F.kl_div):
        yield lambda x, loss=loss: loss(x, target), IMAGE
    yield lambda x: F.binary_cross_entropy(torch.sigmoid(x), target), IMAGE
    heads = torch.randn(2, 4, 24, 16)
    for causal in (False, True):
        yield (
            lambda x, causal=causal: F.scaled_dot_product_attention(x, heads, heads + x.mean(), is_causal=causal),
            (2, 4, 24, 16),
        )
    mask = torch.randn(2, 1, 24, 24)
    yield lambda x: F.scaled_dot_product_attention(x, x * 2, heads + x, attn_mask=mask), (2, 4, 24, 16)
    yield nn.Linear(10, 7), IMAGE
    yield lambda x: x @ x.mT, SEQUENCE
    yield nn.LSTM(9, 6, batch_first=True), SEQUENCE
    yield lambda x: x[:, torch.tensor([2, 0, 2])] + x.index_select(1, torch.tensor([1, 1, 3])), IMAGE
    yield lambda x: x.gather(1, torch.zeros(2, 4, 9, 10, dtype=torch.int64)), IMAGE
    yield lambda x: x.masked_fill(x > 0.5, 0.0) + torch.where(x > 0, x, x * 2), IMAGE
    yield lambda x: x.scatter_add(1, torch.zeros(2, 4, 9, 10, dtype=torch.int64), x[:, :4] * 2), IMAGE
    offset = torch.randn(IMAGE) + 30
    yield lambda x: F.group_norm(x + offset, 4), IMAGE
    yield lambda x: F.batch_norm(x + offset, None, None, training=True), IMAGE
    yield lambda x: F.instance_norm(x + offset), IMAGE
    yield lambda x: F.layer_norm(x + offset, [10]), IMAGE
    yield lambda x: torch.einsum("bchw,dc->bdhw", x, x[0, :, :, 0].mT), IMAGE
    yield lambda x: torch.baddbmm(x, x @ x.mT, x), SEQUENCE
    yield lambda x: torch.addmm(x[0], x[0] @ x[0].mT, x[0]), SEQUENCE
    yield lambda x: torch.bmm(x, x.mT), SEQUENCE
    yield lambda x: torch.linalg.solve(x @ x.mT + 5 * torch.eye(16), x), SEQUENCE
    yield lambda x: F.embedding(torch.tensor([[1, 3], [0, 1]]), x), (5, 6)
    yield lambda x: F.embedding_bag(torch.tensor([[1, 3], [0, 1]]), x), (5, 6)


def from_images(calls: Calls) -> None:
    torch.manual_seed(11)
    for function, shape in nets():
        x = torch.randn(shape, requires_grad=True)
        parameters = list(function.parameters()) if isinstance(function, nn.Module) else []
        with suppress(Exception), Recording(calls, "images"):
            differentiate(lambda function=function, x=x: function(x), [x, *parameters])
