"""Normalisations, activations and elementwise chains."""

from __future__ import annotations

from tests.python.random_networks.blocks_convolution import module_block, require, spatial
from tests.python.random_networks.draw import Draw, divisors
from tests.python.random_networks.network import Code, Context, Shape
from tests.python.random_networks.text import call, sizes


def batch_norm(d: Draw, x: Shape, c: Context) -> Code:
    require(2 <= len(x) <= 5)
    elements = x[0]
    for size in x[2:]:
        elements *= size
    require(elements > 1)
    n = max(len(x) - 2, 1)
    text = call(
        f"nn.BatchNorm{n}d", x[1], eps=(d.of("eps", 1e-5, 1e-3, 0.1), 1e-5), momentum=(d.of("momentum", 0.1, 0.5), 0.1),
        affine=(d.flag("affine", True), True), track_running_stats=(d.flag("track", True), True),
    )  # fmt: skip
    frozen = [".eval()"] if d.flag("evaluated") else []
    return module_block(c, "batch_norm", text + "".join(frozen))


def group_norm(d: Draw, x: Shape, c: Context) -> Code:
    require(len(x) >= 2)
    groups = d.of("groups", *divisors(x[1]))
    elements = x[1] // groups
    for size in x[2:]:
        elements *= size
    require(elements > 2)
    text = call(
        "nn.GroupNorm", groups, x[1], eps=(d.of("eps", 1e-5, 1e-3), 1e-5), affine=(d.flag("affine", True), True)
    )
    return module_block(c, "group_norm", text)


def instance_norm(d: Draw, x: Shape, c: Context) -> Code:
    n = spatial(x)
    elements = 1
    for size in x[2:]:
        elements *= size
    require(elements > 2)
    text = call(
        f"nn.InstanceNorm{n}d", x[1], affine=(d.flag("affine"), False),
        track_running_stats=(d.flag("track"), False),
    )  # fmt: skip
    return module_block(c, "instance_norm", text)


def layer_norm(d: Draw, x: Shape, c: Context) -> Code:
    count = d.size("dimensions", 1, len(x) - 1)
    shape = x[len(x) - count :]
    elements = 1
    for size in shape:
        elements *= size
    require(elements > 2)
    if d.flag("rms"):
        return module_block(c, "rms_norm", f"nn.RMSNorm([{sizes(shape)}], eps=1e-5)")
    affine = d.flag("affine", True)
    text = call(
        "nn.LayerNorm", f"[{sizes(shape)}]", elementwise_affine=(affine, True), bias=(d.flag("bias", True), True)
    )
    return module_block(c, "layer_norm", text)


def other_norm(d: Draw, x: Shape, c: Context) -> Code:
    which = d.of("which", "normalize", "response", "standardize", "weightless_batch")
    if which == "normalize":
        axis = d.size("axis", 1, len(x) - 1)
        return Code(forward=[f"x = F.normalize(x, p={d.of('p', 2.0, 1.0, 3.0)}, dim={axis}, eps=1e-2)"])
    if which == "response":
        require(len(x) >= 3)
        return Code(forward=[f"x = F.local_response_norm(x, {d.of('size', 3, 2)})"])
    axis = d.size("axis", 0, len(x) - 1, simplest=len(x) - 1)
    require(x[axis] > 1)
    if which == "standardize":
        return Code(
            forward=[
                f"x = (x - x.mean({axis}, keepdim=True)) / (x.var({axis}, keepdim=True, correction=0) + 0.1).sqrt()"
            ]
        )
    correction = d.of("correction", 1, 0)
    return Code(
        forward=[
            f"deviation, mean = torch.std_mean(x, {axis}, correction={correction}, keepdim=True)",
            "x = (x - mean) / (deviation + 0.5)",
        ]
    )


def weight_normed(d: Draw, x: Shape, c: Context) -> Code:
    """A layer whose weight is written as direction and length."""
    linear = len(x) == 2 or d.flag("linear")
    if linear:
        text = f"nn.Linear({x[-1]}, {d.size('features', 2, 7)})"
        axis = d.of("axis", 0, 1)
    else:
        n = spatial(x)
        text = f"nn.Conv{n}d({x[1]}, {d.size('features', 2, 7)}, {d.of('kernel', 1, 3)}, padding=1)"
        axis = d.of("axis", 0, 1)
    return module_block(c, "weight_normed", f"torch.nn.utils.parametrizations.weight_norm({text}, dim={axis})")


SMOOTH = (
    "torch.tanh(x)", "F.gelu(x)", "F.silu(x)", "torch.sigmoid(x)", "F.elu(x)", "F.softplus(x)", "F.mish(x)",
    "F.gelu(x, approximate='tanh')", "F.selu(x)", "F.celu(x, 0.7)", "F.logsigmoid(x)", "F.softsign(x)",
    "torch.sin(x)", "torch.cos(x)", "torch.erf(x)", "torch.atan(x)", "torch.asinh(x)", "torch.exp(-x.square())",
    "x * torch.sigmoid(1.7 * x)", "(x.square() + 0.3).sqrt()", "(x.abs() + 1).log()", "x.clamp(-1, 1) + x",
    "torch.expm1(x.clamp(-2, 2))", "torch.rsqrt(x.square() + 1)", "(x.square() + 0.5).reciprocal()",
    "torch.logaddexp(x, 0.5 * x)", "torch.hypot(x, x + 3)", "torch.lerp(x, torch.tanh(x), 0.3)",
    "torch.addcmul(x, x, x.sin(), value=0.5)", "torch.addcdiv(x, x.sin(), x.square() + 1, value=0.5)",
    "torch.where(x > 0.1, x, 0.5 * x)", "x.masked_fill(x < -0.4, 0.3)", "torch.maximum(x, 0.3 * x.cos())",
    "torch.minimum(x.sin(), 0.4 * x)", "torch.remainder(x, 3.0)", "x.sign() * x.square()",
    "torch.xlogy(x, x.abs() + 0.5)", "x.abs().pow(1.5)", "torch.sinc(x)", "torch.atan2(x, x.square() + 1)",
    "F.tanhshrink(x)", "x.to(torch.float64).sin().to(x.dtype)", "torch.logit(torch.sigmoid(x) * 0.8 + 0.1)",
    "torch.frac(x) + x", "x.trunc() + x.sin()", "F.softshrink(x, 0.1)",
)  # fmt: skip
EDGED = (
    "F.relu(x)", "F.leaky_relu(x, 0.1)", "F.hardswish(x)", "F.hardtanh(x)", "F.relu6(x)", "F.hardsigmoid(x)",
    "F.threshold(x, 0.1, -0.2)", "F.hardshrink(x, 0.2)",
)  # fmt: skip


def activation(d: Draw, x: Shape, c: Context) -> Code:
    text = d.of("function", *SMOOTH, *EDGED)
    return Code(forward=[f"x = {text}"])


def prelu(d: Draw, x: Shape, c: Context) -> Code:
    return module_block(c, "prelu", call("nn.PReLU", d.of("parameters", 1, x[1])))


def gated(d: Draw, x: Shape, c: Context) -> Code:
    axis = d.size("axis", 1, len(x) - 1)
    require(x[axis] % 2 == 0)
    if d.flag("by_hand"):
        gate = d.of("gate", "F.silu(gate)", "F.gelu(gate)", "torch.tanh(gate)")
        return Code(forward=[f"value, gate = x.chunk(2, dim={axis})", f"x = value * {gate}"])
    return Code(forward=[f"x = F.glu(x, dim={axis})"])


def softmax(d: Draw, x: Shape, c: Context) -> Code:
    axis = d.size("axis", 1, len(x) - 1)
    which = d.of("which", "softmax", "log_softmax", "softmin")
    return Code(forward=[f"x = F.{which}(x, dim={axis}) * {x[axis]}.0"])


def dropout(d: Draw, x: Shape, c: Context) -> Code:
    p = d.of("p", 0.1, 0.5)
    if 3 <= len(x) <= 5 and d.flag("channels"):
        return Code(forward=[f"x = F.dropout{len(x) - 2}d(x, {p})"])
    return Code(forward=[f"x = F.dropout(x, {p})"])


def noise(d: Draw, x: Shape, c: Context) -> Code:
    text = d.of("which", "torch.rand_like(x)", "torch.randn_like(x)", "torch.bernoulli(torch.full_like(x, 0.6))")
    return Code(forward=[f"x = x + {d.of('factor', 0.3, 1.0)} * {text}"])


def scale(d: Draw, x: Shape, c: Context) -> Code:
    """Parameters that are broadcast over some dimensions."""
    kept = [d.flag(f"kept{axis}", axis == len(x) - 1) for axis in range(1, len(x))]
    shape = [size if keep else 1 for size, keep in zip(x[1:], kept)]
    name = c.name("scale")
    forward = [f"x = x * self.{name}"]
    init = [f"self.{name} = nn.Parameter(torch.ones({sizes(shape)}))"]
    if d.flag("shift"):
        init.append(f"self.{name}_shift = nn.Parameter(torch.zeros({sizes(shape)}))")
        forward = [f"x = x * self.{name} + self.{name}_shift"]
    if d.flag("buffer"):
        init.append(f"self.register_buffer('{name}_count', torch.zeros({sizes(shape)}))")
        forward.append(f"self.{name}_count.mul_(0.9).add_(0.1 * x.detach().mean(0, keepdim=True).mean())")
    return Code(init, forward)


BLOCKS = {
    "batch_norm": (batch_norm, 3),
    "group_norm": (group_norm, 3),
    "instance_norm": (instance_norm, 2),
    "layer_norm": (layer_norm, 3),
    "other_norm": (other_norm, 2),
    "weight_normed": (weight_normed, 1.5),
    "activation": (activation, 8),
    "prelu": (prelu, 1),
    "gated": (gated, 2),
    "softmax": (softmax, 1.5),
    "dropout": (dropout, 1.5),
    "noise": (noise, 0.7),
    "scale": (scale, 2),
}
