"""Convolutions, pools, resizing, padding and cropping, over [samples, channels, one to three dimensions]."""

from __future__ import annotations

from tests.python.random_networks.draw import Draw, divisors
from tests.python.random_networks.network import Code, Context, DoesNotFit, Module, Shape
from tests.python.random_networks.text import call


def spatial(x: Shape) -> int:
    if not 3 <= len(x) <= 5:
        raise DoesNotFit
    return len(x) - 2


def require(condition: bool) -> None:
    if not condition:
        raise DoesNotFit


def module_block(c: Context, kind: str, text: str, forward: str = "x = self.{name}(x)") -> Code:
    """A module that is called on `x`; later blocks may use it again."""
    name = c.name(kind)
    c.modules.append(Module(name, kind, (), ()))
    return Code([f"self.{name} = {text}"], [forward.format(name=name)])


def convolution(d: Draw, x: Shape, c: Context) -> Code:
    n = spatial(x)
    groups = d.of("groups", *divisors(x[1]))
    channels = d.size("channels", 1, 5, simplest=2) * groups
    kernel = d.each("kernel", n, 1, 3, 2, 4, 5)
    stride = d.each("stride", n, 1, 2, 3)
    dilation = d.each("dilation", n, 1, 2)
    padding = d.each("padding", n, 0, 1, 2)
    mode = d.of("mode", "'zeros'", "'circular'", "'reflect'", "'replicate'")
    for size, k, p, step in zip(x[2:], kernel, padding, dilation):
        require(size + 2 * p > step * (k - 1))
        require(mode not in ("'circular'", "'reflect'") or p < size)
    if d.flag("same") and set(stride) == {1}:
        require(all(mode != "'reflect'" or step * (k - 1) < size for size, k, step in zip(x[2:], kernel, dilation)))
        require(all(mode != "'circular'" or step * (k - 1) < size for size, k, step in zip(x[2:], kernel, dilation)))
        padding = "'same'"
    return module_block(
        c,
        "convolution",
        call(
            f"nn.Conv{n}d", x[1], channels, kernel, stride=(stride, 1), padding=(padding, 0), dilation=(dilation, 1),
            groups=(groups, 1), bias=(d.flag("bias", True), True), padding_mode=(mode, "'zeros'"),
        ),
    )  # fmt: skip


def depthwise(d: Draw, x: Shape, c: Context) -> Code:
    n = spatial(x)
    kernel = d.of("kernel", 3, 5, 1)
    multiple = d.of("multiple", 1, 2)
    text = call(
        f"nn.Conv{n}d", x[1], x[1] * multiple, kernel, padding=(kernel // 2, 0), groups=(x[1], 1),
        bias=(d.flag("bias", True), True),
    )  # fmt: skip
    return module_block(c, "depthwise", text)


def transposed(d: Draw, x: Shape, c: Context) -> Code:
    n = spatial(x)
    groups = d.of("groups", *divisors(x[1]))
    channels = d.size("channels", 1, 4, simplest=2) * groups
    kernel = d.each("kernel", n, 2, 1, 3, 4)
    stride = d.each("stride", n, 1, 2, 3)
    dilation = d.each("dilation", n, 1, 2)
    padding = d.each("padding", n, 0, 1, 2)
    output_padding = d.each("output_padding", n, 0, 1, 2)
    for size, k, p, s, step, more in zip(x[2:], kernel, padding, stride, dilation, output_padding):
        require((size - 1) * s - 2 * p + step * (k - 1) + more + 1 >= 1)
        require(more == 0 or more < max(s, step))
    text = call(
        f"nn.ConvTranspose{n}d", x[1], channels, kernel, stride=(stride, 1), padding=(padding, 0),
        output_padding=(output_padding, 0), groups=(groups, 1), bias=(d.flag("bias", True), True),
        dilation=(dilation, 1),
    )  # fmt: skip
    return module_block(c, "transposed", text)


def pool(d: Draw, x: Shape, c: Context) -> Code:
    n = spatial(x)
    which = d.of("which", "avg", "max", "lp", "adaptive_avg", "adaptive_max")
    kernel = d.each("kernel", n, 2, 1, 3)
    stride = d.each("stride", n, 2, 1, 3)
    if which.startswith("adaptive"):
        target = d.each("target", n, 1, 2, 3, 4)
        return Code(forward=[f"x = {call(f'F.{which}_pool{n}d', 'x', target if n > 1 else target[0])}"])
    if which == "lp":
        require(n < 3 and all(size >= k for size, k in zip(x[2:], kernel)))
        return Code(forward=[f"x = F.lp_pool{n}d(x.abs() + 0.1, 2, {kernel[0] if n == 1 else tuple(kernel)})"])
    padding = d.each("padding", n, 0, 1)
    dilation = d.each("dilation", n, 1, 2) if which == "max" else [1] * n
    for size, k, p, step in zip(x[2:], kernel, padding, dilation):
        require(2 * p <= k and size + 2 * p > step * (k - 1))
    keywords = {"stride": (stride, kernel), "padding": (padding, 0), "ceil_mode": (d.flag("ceil"), False)}
    if which == "max":
        keywords["dilation"] = (dilation, 1)
    else:
        keywords["count_include_pad"] = (d.flag("count_padding", True), True)
    if n == 1:
        keywords = {name: (value[0] if isinstance(value, list) else value, 0) for name, (value, _) in keywords.items()}
        keywords = {name: (value, None) for name, (value, _) in keywords.items()}
    return Code(forward=[f"x = {call(f'F.{which}_pool{n}d', 'x', kernel, **keywords)}"])


def resize(d: Draw, x: Shape, c: Context) -> Code:
    n = spatial(x)
    modes = {1: ("nearest", "linear"), 2: ("nearest", "bilinear", "bicubic"), 3: ("nearest", "trilinear")}[n]
    mode = d.of("mode", *modes, "nearest-exact")
    align = {} if mode.startswith("nearest") else {"align_corners": (d.flag("align"), None)}
    if d.flag("by_factor"):
        factor = d.of("factor", 2.0, 1.5, 0.5, 3.0)
        require(all(int(size * factor) >= 1 for size in x[2:]))
        where = {"scale_factor": (factor, None)}
    else:
        target = d.each("target", n, 4, 3, 7, 1, 2)
        where = {"size": (f"({', '.join(map(str, target))},)", None)}
    return Code(forward=[f"x = {call('F.interpolate', 'x', **where, mode=(repr(mode), None), **align)}"])


def padding(d: Draw, x: Shape, c: Context) -> Code:
    n = spatial(x)
    mode = d.of("mode", "constant", "reflect", "replicate", "circular")
    amounts = [d.of(f"amount{index}", 1, 0, 2, *((-1,) if mode == "constant" else ())) for index in range(2 * n)]
    for size, before, after in zip(reversed(x[2:]), amounts[::2], amounts[1::2]):
        require(size + min(before, 0) + min(after, 0) >= 1)
        require(mode not in ("reflect", "circular") or max(before, after) < size)
    value = d.of("value", 0.0, 0.7) if mode == "constant" else 0.0
    text = call("F.pad", "x", f"({', '.join(map(str, amounts))})", mode=(repr(mode), "'constant'"), value=(value, 0.0))
    return Code(forward=[f"x = {text}"])


def crop(d: Draw, x: Shape, c: Context) -> Code:
    axis = d.size("axis", 1, len(x) - 1)
    size = x[axis]
    require(size > 1)
    begin = d.size("begin", 0, size - 1)
    end = d.size("end", begin + 1, size, simplest=size)
    step = d.of("step", 1, 2)
    dots = ":, " * axis
    return Code(forward=[f"x = x[{dots}{begin}:{end}{f':{step}' if step > 1 else ''}]"])


def shuffle(d: Draw, x: Shape, c: Context) -> Code:
    require(len(x) == 4)
    if d.flag("unshuffle"):
        require(x[2] % 2 == 0 and x[3] % 2 == 0)
        return Code(forward=["x = F.pixel_unshuffle(x, 2)"])
    if d.flag("channels"):
        groups = d.of("groups", *divisors(x[1]))
        return Code(forward=[f"x = nn.ChannelShuffle({groups})(x)"])
    require(x[1] % 4 == 0)
    return Code(forward=["x = F.pixel_shuffle(x, 2)"])


def patches(d: Draw, x: Shape, c: Context) -> Code:
    """im2col, and back."""
    require(len(x) == 4)
    kernel = d.each("kernel", 2, 2, 1, 3)
    stride = d.each("stride", 2, 1, 2)
    require(all(size >= k for size, k in zip(x[2:], kernel)))
    lines = [f"x = {call('F.unfold', 'x', kernel, stride=(stride, 1))}"]
    if d.flag("back"):
        lines.append(f"x = {call('F.fold', 'torch.tanh(x)', f'({x[2]}, {x[3]})', kernel, stride=(stride, 1))}")
    return Code(forward=lines)


def grid_sample(d: Draw, x: Shape, c: Context) -> Code:
    require(len(x) == 4)
    entry = c.entry("grid")
    padding_mode = d.of("padding_mode", "'zeros'", "'border'", "'reflection'")
    height, width = d.size("height", 1, 4, simplest=3), d.size("width", 1, 4, simplest=3)
    text = call(
        "F.grid_sample", "x", f"batch['{entry}']", mode=(d.of("mode", "'bilinear'", "'nearest'"), "'bilinear'"),
        padding_mode=(padding_mode, "'zeros'"), align_corners=(d.flag("align"), None),
    )  # fmt: skip
    return Code(forward=[f"x = {text}"], batch={entry: f"torch.randn({c.whole}, {height}, {width}, 2)"})


BLOCKS = {
    "convolution": (convolution, 6),
    "depthwise": (depthwise, 2),
    "transposed": (transposed, 3),
    "pool": (pool, 4),
    "resize": (resize, 2),
    "padding": (padding, 2),
    "crop": (crop, 2),
    "shuffle": (shuffle, 2),
    "patches": (patches, 1),
    "grid_sample": (grid_sample, 1),
}
