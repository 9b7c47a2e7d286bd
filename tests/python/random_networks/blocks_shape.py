"""Reshapes, permutations, indexing, gather and scatter, reductions and writes in place."""

from __future__ import annotations

from itertools import permutations

from tests.python.random_networks.blocks_convolution import require
from tests.python.random_networks.draw import Draw, divisors
from tests.python.random_networks.network import Code, Context, Shape
from tests.python.random_networks.text import sizes


def permute(d: Draw, x: Shape, c: Context) -> Code:
    """The samples stay in front, but seldom."""
    orders = [*[(0, *order) for order in permutations(range(1, len(x)))][1:], (1, 0, *range(2, len(x)))]
    order = d.of("order", *map(list, orders))
    then = d.of("then", "", ".contiguous()", ".clone()")
    return Code(forward=[f"x = x.permute({sizes(order)}){then}"])


def transpose(d: Draw, x: Shape, c: Context) -> Code:
    require(len(x) >= 3)
    return Code(
        forward=[
            f"x = x.{d.of('which', 'transpose(-1, -2)', 'transpose(1, -1)', 'movedim(1, -1)', 'movedim(-1, 1)', 'mT')}"
        ]
    )


def flatten(d: Draw, x: Shape, c: Context) -> Code:
    require(len(x) >= 3)
    begin = d.size("begin", 1, len(x) - 2)
    end = d.size("end", begin + 1, len(x) - 1, simplest=len(x) - 1)
    return Code(forward=[f"x = x.flatten({begin}, {end})"])


def reshape(d: Draw, x: Shape, c: Context) -> Code:
    """The elements of a sample in another shape, or samples and positions as one dimension."""
    if len(x) >= 3 and d.flag("samples"):
        return Code(forward=[f"x = x.reshape({x[0] * x[1]}, {sizes(x[2:])})"])
    elements = 1
    for size in x[1:]:
        elements *= size
    shape = []
    for index in range(d.size("dimensions", 1, 4, simplest=2) - 1):
        size = d.of(f"size{index}", *(divisors(elements)[1:6] or [1]), 1)
        shape.append(size)
        elements //= size
    shape.append(elements)
    return Code(forward=[f"x = x.{d.of('how', 'reshape', 'contiguous().view')}({x[0]}, {sizes(shape)})"])


def one(d: Draw, x: Shape, c: Context) -> Code:
    """A dimension of one comes, is spread, or goes."""
    ones = [axis for axis in range(1, len(x)) if x[axis] == 1]
    if ones and d.flag("squeeze") and len(x) > 2:
        return Code(forward=[f"x = x.squeeze({d.of('which', *ones)})"])
    if ones and d.flag("expand"):
        axis, count = d.of("which", *ones), d.size("count", 2, 4)
        shape = ["-1"] * len(x)
        shape[axis] = str(count)
        return Code(forward=[f"x = x.expand({', '.join(shape)}){d.of('then', '', ' * 1.5')}"])
    require(len(x) <= 4)
    return Code(forward=[f"x = x.unsqueeze({d.size('axis', 1, len(x))})"])


def repeat(d: Draw, x: Shape, c: Context) -> Code:
    axis = d.size("axis", 1, len(x) - 1)
    which = d.of("which", "cat", "repeat", "interleave", "tile", "stack")
    if which == "cat":
        others = d.of("others", "torch.tanh(x)", "x[:, :1]", "x.flip(1)")
        axis = 1 if others == "x[:, :1]" else axis
        return Code(forward=[f"x = torch.cat([x, {others}], dim={axis})"])
    if which == "stack":
        require(len(x) <= 4)
        return Code(forward=[f"x = torch.stack([x, x.sin()], dim={axis})"])
    if which == "interleave":
        return Code(forward=[f"x = x.repeat_interleave(2, dim={axis})"])
    counts = ["1"] * len(x)
    counts[axis] = "2"
    return Code(forward=[f"x = x.{which}({', '.join(counts)})"])


def split(d: Draw, x: Shape, c: Context) -> Code:
    axis = d.size("axis", 1, len(x) - 1)
    require(x[axis] > 1)
    first = d.size("first", 1, x[axis] - 1)
    join = d.of("join", "cat", "sum")
    if join == "sum":
        return Code(
            forward=[
                f"head, tail = x.split([{first}, {x[axis] - first}], dim={axis})",
                f"x = head.mean({axis}, keepdim=True) + tail",
            ]
        )
    return Code(
        forward=[
            f"head, tail = x.split([{first}, {x[axis] - first}], dim={axis})",
            f"x = torch.cat([torch.tanh(tail), head], dim={axis})",
        ]
    )


def roll(d: Draw, x: Shape, c: Context) -> Code:
    axis = d.size("axis", 0, len(x) - 1, simplest=len(x) - 1)
    which = d.of(
        "which",
        f"roll({d.of('by', 1, -1, 2)}, {axis})",
        f"flip({axis})",
        f"roll(({d.of('by2', 1, 2)}, 1), (1, {len(x) - 1}))",
    )
    return Code(forward=[f"x = x.{which}"])


def index(d: Draw, x: Shape, c: Context) -> Code:
    axis = d.size("axis", 1, len(x) - 1)
    count = d.size("count", 1, 5, simplest=3)
    order = [d.size(f"index{number}", 0, x[axis] - 1) for number in range(count)]
    which = d.of("which", "select", "index_select", "fancy", "two", "batch")
    dots = ":, " * axis
    if which == "select":
        require(len(x) >= 3)
        return Code(forward=[f"x = x[{dots}{order[0]}]"])
    if which == "index_select":
        return Code(forward=[f"x = x.index_select({axis}, torch.tensor({order}))"])
    if which == "two":
        require(len(x) >= 4)
        other = [number % x[2] for number in order]
        first = [number % x[1] for number in order]
        return Code(forward=[f"x = x[:, torch.tensor({first}), torch.tensor({other})]"])
    if which == "batch":
        require(x[0] == c.samples)
        entry = c.entry("places")
        text = f"torch.randint(0, {x[1]}, ({c.whole},))"
        return Code(
            forward=[
                f"x = x[torch.arange({x[0]}), batch['{entry}']]"
                if len(x) > 2
                else f"x = x[torch.arange({x[0]}), batch['{entry}']].unsqueeze(1)"
            ],
            batch={entry: text},
        )
    return Code(forward=[f"x = x[{dots}torch.tensor({order})]"])


def gather(d: Draw, x: Shape, c: Context) -> Code:
    axis = d.size("axis", 1, len(x) - 1)
    which = d.of(
        "which",
        "gather",
        "take_along",
        "scatter",
        "scatter_add",
        "index_add",
        "index_put",
        "scatter_reduce",
        "index_copy",
    )
    entry = c.entry("gather")
    require(x[0] == c.samples)
    if which in ("gather", "take_along"):
        count = d.size("count", 1, 4, simplest=2)
        shape = [c.whole, *x[1:]]
        shape[axis] = count
        text = f"torch.randint(0, {x[axis]}, ({sizes(shape)}))"
        call = (
            f"x.gather({axis}, batch['{entry}'])"
            if which == "gather"
            else f"torch.take_along_dim(x, batch['{entry}'], {axis})"
        )
        return Code(forward=[f"x = {call}"], batch={entry: text})
    if which in ("scatter", "scatter_add", "scatter_reduce"):
        # Of places that are met once: a permutation, since which of two writes wins is not said.
        text = f"torch.rand({c.whole}, {sizes(x[1:])}).argsort({axis})"
        if which == "scatter_add":
            text = f"torch.randint(0, {x[axis]}, ({c.whole}, {sizes(x[1:])}))"
            call = f"torch.zeros_like(x).scatter_add({axis}, batch['{entry}'], x)"
        elif which == "scatter":
            call = f"x.scatter({axis}, batch['{entry}'], torch.tanh(x))"
        else:
            reduce = d.of("reduce", "'sum'", "'mean'", "'amax'")
            call = f"torch.zeros_like(x).scatter_reduce({axis}, batch['{entry}'], x, {reduce})"
        return Code(forward=[f"x = {call}"], batch={entry: text})
    places = [d.size(f"index{number}", 0, x[axis] - 1) for number in range(2)]
    if which in ("index_put", "index_copy"):
        places = sorted(set(places))
    shape = list(x)
    shape[axis] = len(places)
    source = f"x.narrow({axis}, 0, 1).expand({sizes(shape)}).sin()"
    if which == "index_put":
        dots = ":, " * axis
        return Code(forward=["y = x.clone()", f"y[{dots}torch.tensor({places})] = {source}", "x = y"])
    return Code(forward=[f"x = x.{which}({axis}, torch.tensor({places}), {source})"])


def sorting(d: Draw, x: Shape, c: Context) -> Code:
    axis = d.size("axis", 1, len(x) - 1)
    which = d.of("which", "sort", "topk", "cumsum", "cumprod", "logcumsumexp", "cummax", "argsort", "median")
    if which == "topk":
        return Code(forward=[f"x = x.topk({d.size('count', 1, x[axis])}, dim={axis})[0]"])
    if which == "cumprod":
        return Code(forward=[f"x = (0.3 * torch.tanh(x) + 1).cumprod({axis})"])
    if which == "argsort":
        return Code(forward=[f"x = x + 0.1 * x.argsort({axis})"])
    if which == "median":
        return Code(forward=[f"x = x.median({axis}, keepdim=True)[0] + x"])
    words = {"sort": f"sort({axis}{d.of('descending', '', ', descending=True')})[0]", "cummax": f"cummax({axis})[0]"}
    return Code(forward=[f"x = x.{words.get(which, f'{which}({axis})')}{'' if which != 'cumsum' else f' / {x[axis]}'}"])


# {d}: the dimensions, {k}: whether they stay. The first ones reduce any number of dimensions, the others one.
OVER_SEVERAL = (
    "mean({d}{k})", "sum({d}{k})", "amax({d}{k})", "amin({d}{k})", "logsumexp({d}{k})", "var({d}, correction=0{k})",
    "square().add(0.1).mean({d}{k}).sqrt()", "norm(dim={d}{k})", "abs().add(0.1).norm(p=3, dim={d}{k})",
    "abs().sum({d}{k})",
)  # fmt: skip
OVER_ONE = (
    "max({d}{k})[0]", "min({d}{k})[0]", "mul(0.2).add(1).prod({d}{k})", "std({d}, correction=0{k})",
    "median({d}{k})[0]",
)  # fmt: skip


def reduction(d: Draw, x: Shape, c: Context) -> Code:
    """Over some dimensions, which go, stay as one, or are subtracted."""
    form = d.of("form", "goes", "stays", "subtracted")
    text = d.of("function", *OVER_SEVERAL, *OVER_ONE)
    axes = [d.size("axis", 1, len(x) - 1)]
    if d.flag("samples"):
        axes, form = [0], "subtracted"
    elif text in OVER_SEVERAL and len(x) > 3 and d.flag("two"):
        axes = [1, len(x) - 1] if d.flag("outer") else [len(x) - 2, len(x) - 1]
    where = str(axes[0]) if len(axes) == 1 else f"({sizes(axes)})"
    if text.startswith(("std", "norm")):
        require(all(x[axis] > 1 for axis in axes))
    if form == "goes":
        require(len(x) - len(axes) >= 2)
    reduced = "x." + text.format(d=where, k="" if form == "goes" else ", keepdim=True")
    return Code(forward=[f"x = x - {reduced}" if form == "subtracted" else f"x = {reduced}"])


def matrix_parts(d: Draw, x: Shape, c: Context) -> Code:
    require(len(x) >= 3)
    which = d.of("which", "tril", "triu", "diagonal", "diag_embed", "unfold", "rot90", "window")
    if which == "diagonal":
        return Code(forward=["x = x.diagonal(0, -2, -1)"])
    if which == "diag_embed":
        require(len(x) <= 4 and x[-1] <= 8)
        return Code(forward=["x = torch.diag_embed(x)"])
    if which in ("unfold", "window"):
        require(len(x) <= 4 and x[-1] >= 2)
        size = d.size("size", 2, min(x[-1], 4))
        return Code(forward=[f"x = x.unfold(-1, {size}, {d.of('step', 1, 2) if which == 'window' else size})"])
    if which == "rot90":
        return Code(forward=["x = x.rot90(1, (-2, -1))"])
    return Code(forward=[f"x = x.{which}({d.of('offset', 0, 1, -1)})"])


def in_place(d: Draw, x: Shape, c: Context) -> Code:
    """Writes through views, which capture turns into functions."""
    axis = d.size("axis", 1, len(x) - 1)
    place = d.size("place", 0, x[axis] - 1)
    dots = ":, " * axis
    write = d.of(
        "write", f"y[{dots}{place}] = 0.5", f"y[{dots}{place}:].mul_(1.5)",
        f"y[{dots}{place}].add_(y[{dots}0].detach())",
        f"y.select({axis}, {place}).copy_(x.select({axis}, 0).sin())", f"y.transpose(-1, {axis - len(x)}).add_(0.3)",
        f"y.narrow({axis}, {place}, 1).fill_(0.25)", f"y[{dots}::2].tanh_()", "y.masked_fill_(x > 0.5, 0.5)",
        "y.relu_().add_(x, alpha=0.3)", "torch.sigmoid_(y)", "y.clamp_(-1.0, 1.0).sub_(x)",
    )  # fmt: skip
    return Code(forward=["y = x.clone()", write, "x = y"])


def comparison(d: Draw, x: Shape, c: Context) -> Code:
    """Values that carry no gradient take part."""
    text = d.of(
        "function", "x * (x > x.mean(1, keepdim=True))", "x + F.one_hot(x.argmax(1), {size}).movedim(-1, 1) * 0.3",
        "torch.where((x > 0).any(1, keepdim=True), x, x.sin())", "x * (x.abs() < 1.5).to(x.dtype).detach()",
        "x + (x.round() == 0) * 0.5", "x * x.detach().sigmoid()", "x + (x - x.detach())",
        "x + torch.bucketize(x.detach(), torch.tensor([-0.5, 0.0, 0.5], dtype=x.dtype)) * 0.1",
        "x + torch.stack(torch.meshgrid(x.mean(1).flatten()[:2], x.flatten()[:3], indexing='ij')).mean()",
    )  # fmt: skip
    return Code(forward=[f"x = {text.replace('{size}', str(x[1]))}"])


BLOCKS = {
    "permute": (permute, 3),
    "transpose": (transpose, 2),
    "flatten": (flatten, 3),
    "reshape": (reshape, 3),
    "one": (one, 2),
    "repeat": (repeat, 1.5),
    "split": (split, 1.5),
    "roll": (roll, 1),
    "index": (index, 2),
    "gather": (gather, 2),
    "sorting": (sorting, 1.5),
    "reduction": (reduction, 3),
    "matrix_parts": (matrix_parts, 1),
    "in_place": (in_place, 1.5),
    "comparison": (comparison, 1),
}
