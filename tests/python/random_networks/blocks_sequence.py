"""Linear layers, attention, recurrent layers, embeddings and products."""

from __future__ import annotations

from tests.python.random_networks.blocks_convolution import module_block, require
from tests.python.random_networks.draw import Draw, divisors
from tests.python.random_networks.network import Code, Context, Module, Shape
from tests.python.random_networks.text import call, sizes


def linear(d: Draw, x: Shape, c: Context) -> Code:
    text = call("nn.Linear", x[-1], d.size("features", 1, 9, simplest=3), bias=(d.flag("bias", True), True))
    if d.flag("channels") and len(x) > 2:
        text = text.replace(f"Linear({x[-1]},", f"Linear({x[1]},")
        return module_block(c, "linear", text, "x = self.{name}(x.movedim(1, -1)).movedim(-1, 1)")
    code = module_block(c, "linear", text)
    c.modules[-1] = Module(c.modules[-1].name, "linear", (x[-1],), (d.options.get("features", 3),))
    return code


def again(d: Draw, x: Shape, c: Context) -> Code:
    """A module of before, once more: its weights are shared. Fits only where shapes do, which running it tells."""
    require(bool(c.modules))
    module = c.modules[d.size("module", 0, 15) % len(c.modules)]
    if module.kind == "linear" and d.flag("turned"):
        return Code(forward=[f"x = F.linear(x, self.{module.name}.weight.t())"])
    return Code(forward=[f"x = self.{module.name}(x)"])


def tied(d: Draw, x: Shape, c: Context) -> Code:
    """Two layers that have one weight under two names."""
    first, second = c.name("tied"), c.name("tied")
    bias = d.flag("bias", True)
    layer = call("nn.Linear", x[-1], x[-1], bias=(bias, True))
    init = [f"self.{first} = {layer}", f"self.{second} = {layer}", f"self.{second}.weight = self.{first}.weight"]
    return Code(init, [f"x = self.{second}(torch.tanh(self.{first}(x)))"])


def attention(d: Draw, x: Shape, c: Context) -> Code:
    """Over [samples, time, features], written out with the fused operator."""
    require(len(x) == 3)
    heads = d.of("heads", *divisors(x[2]))
    name = c.name("attention")
    init = [f"self.{name} = nn.Linear({x[2]}, {3 * x[2]})"]
    forward = [
        f"q, k, v = self.{name}(x).chunk(3, dim=-1)",
        f"q, k, v = (t.unflatten(-1, ({heads}, {x[2] // heads})).transpose(1, 2) for t in (q, k, v))",
    ]
    batch = {}
    mask = d.of("mask", "none", "causal", "padding", "bias", "constant", "learned")
    words = ""
    if mask == "causal":
        words = ", is_causal=True"
    elif mask == "padding":
        entry = c.entry("padding")
        batch[entry] = f"torch.arange({x[1]}) < torch.randint(1, {x[1] + 1}, ({c.whole}, 1))"
        words = f", attn_mask=batch['{entry}'][:, None, None, :]"
    elif mask == "bias":
        entry = c.entry("bias")
        batch[entry] = f"torch.randn({c.whole}, 1, {x[1]}, {x[1]})"
        words = f", attn_mask=batch['{entry}'].to(x.dtype)"
    elif mask == "constant":
        words = f", attn_mask=torch.ones({x[1]}, {x[1]}, dtype=torch.bool).tril()"
    elif mask == "learned":
        init.append(f"self.{name}_bias = nn.Parameter(torch.zeros({heads}, {x[1]}, {x[1]}))")
        words = f", attn_mask=self.{name}_bias"
    if d.flag("scale"):
        words += ", scale=0.37"
    forward.append(f"x = F.scaled_dot_product_attention(q, k, v{words}).transpose(1, 2).flatten(2)")
    return Code(init, forward, batch)


def bare_attention(d: Draw, x: Shape, c: Context) -> Code:
    """The fused operator over whatever is there: rows of an image, or channels."""
    require(3 <= len(x) <= 4)
    if d.flag("channels"):
        forward = ["y = x.flatten(2)", "x = F.scaled_dot_product_attention(F.normalize(y, dim=-1), torch.tanh(y), y)"]
        return Code(forward=[*forward, f"x = x.reshape({sizes(x)})"])
    query = d.of("query", "x", "torch.tanh(x)", "x.transpose(-1, -2).contiguous().transpose(-1, -2)")
    return Code(
        forward=[f"x = F.scaled_dot_product_attention({query}, torch.sin(x), x{d.of('words', '', ', is_causal=True')})"]
    )


def multihead(d: Draw, x: Shape, c: Context) -> Code:
    require(len(x) == 3)
    heads = d.of("heads", *divisors(x[2]))
    first = d.flag("batch_first", True)
    text = call("nn.MultiheadAttention", x[2], heads, bias=(d.flag("bias", True), True), batch_first=(first, False))
    words, batch = "", {}
    if d.flag("padding"):
        entry = c.entry("padding")
        batch[entry] = f"torch.arange({x[1]}) >= torch.randint(1, {x[1] + 1}, ({c.whole}, 1))"
        require(first)
        words += f", key_padding_mask=batch['{entry}']"
    if d.flag("causal"):
        length = x[1] if first else x[0]
        words += f", attn_mask=torch.ones({length}, {length}, dtype=torch.bool).triu(1)"
    if not d.flag("weights"):
        words += ", need_weights=False"
    code = module_block(c, "multihead", text, "x = self.{name}(x, x, x" + words + ")[0]")
    c.modules.pop()
    code.batch = batch
    return code


def encoder_layer(d: Draw, x: Shape, c: Context) -> Code:
    require(len(x) == 3 and x[2] > 2)
    text = call(
        "nn.TransformerEncoderLayer", x[2], d.of("heads", *divisors(x[2])), d.size("hidden", 2, 9, simplest=4),
        dropout=(d.of("dropout", 0.0, 0.1), 0.1), activation=(d.of("activation", "'gelu'", "'relu'"), "'relu'"),
        batch_first=(d.flag("batch_first", True), False), norm_first=(d.flag("norm_first"), False),
    )  # fmt: skip
    return module_block(c, "encoder_layer", text)


def recurrent(d: Draw, x: Shape, c: Context) -> Code:
    require(len(x) == 3 and x[0] * x[1] > 0)
    kind = d.of("kind", "RNN", "GRU", "LSTM")
    first = d.flag("batch_first", True)
    require((x[1] if first else x[0]) <= 12)
    keywords = {"nonlinearity": (d.of("nonlinearity", "'tanh'", "'relu'"), "'tanh'")} if kind == "RNN" else {}
    text = call(
        f"nn.{kind}", x[2], d.size("hidden", 1, 6, simplest=3), num_layers=(d.of("layers", 1, 2), 1),
        bias=(d.flag("bias", True), True), batch_first=(first, False),
        bidirectional=(d.flag("bidirectional"), False), **keywords,
    )  # fmt: skip
    result = d.of("result", "[0]", "[1]")
    if result == "[1]":
        result = ("[1][0]" if kind == "LSTM" else "[1]") + (".transpose(0, 1)" if first else "")
    code = module_block(c, "recurrent", text, "x = self.{name}(x)" + result)
    c.modules.pop()
    return code


def cell(d: Draw, x: Shape, c: Context) -> Code:
    require(len(x) == 3 and x[1] <= 8)
    kind = d.of("kind", "GRUCell", "RNNCell", "LSTMCell")
    hidden = d.size("hidden", 1, 5, simplest=3)
    name = c.name("cell")
    forward = [f"state = x.new_zeros({x[0]}, {hidden})"]
    if kind == "LSTMCell":
        forward += [
            "memory = state",
            f"for time in range({x[1]}):",
            f"    state, memory = self.{name}(x[:, time], (state, memory))",
        ]
    else:
        forward += [f"for time in range({x[1]}):", f"    state = self.{name}(x[:, time], state)"]
    return Code([f"self.{name} = nn.{kind}({x[2]}, {hidden})"], [*forward, "x = state"])


def positions(d: Draw, x: Shape, c: Context) -> Code:
    """A learned or fixed vector for each position of a dimension."""
    axis = d.size("axis", 1, len(x) - 1)
    if len(x) == 2 or d.flag("sine"):
        shape = "(1, " + ", ".join("-1" if index == axis else "1" for index in range(1, len(x))) + ")"
        return Code(forward=[f"x = x + torch.arange({x[axis]}, dtype=x.dtype).mul(0.3).sin().view{shape}"])
    axis = min(axis, len(x) - 2)
    name = c.name("positions")
    dots = ":" + ", None" * (len(x) - 2 - axis)
    return Code(
        [f"self.{name} = nn.Embedding({x[axis]}, {x[-1]})"], [f"x = x + self.{name}(torch.arange({x[axis]}))[{dots}]"]
    )


def lookup(d: Draw, x: Shape, c: Context) -> Code:
    """An embedding of whole numbers in the batch, added to the last dimension or scaled by it."""
    count = d.size("count", 2, 7)
    name, entry = c.name("embedding"), c.entry("numbers")
    require(x[0] == c.samples)
    if d.flag("bag"):
        text = call("nn.EmbeddingBag", count, x[-1], mode=(d.of("mode", "'sum'", "'mean'"), "'mean'"))
        vector = f"self.{name}(batch['{entry}'])"
        batch = f"torch.randint(0, {count}, ({c.whole}, 3))"
    else:
        text = call("nn.Embedding", count, x[-1], padding_idx=(d.of("padding_index", None, 0, 1), None))
        vector = f"self.{name}(batch['{entry}'])"
        batch = f"torch.randint(0, {count}, ({c.whole},))"
    vector += "" if len(x) == 2 else f".view({x[0]}, {'1, ' * (len(x) - 2)}{x[-1]})"
    return Code([f"self.{name} = {text}"], [f"x = x {d.of('operation', '+', '*')} {vector}"], {entry: batch})


def einsum(d: Draw, x: Shape, c: Context) -> Code:
    """A product with a parameter or with itself, over some dimensions."""
    letters = "abcde"[: len(x)]
    name = c.name("einsum")
    which = d.of("which", "last", "middle", "two", "own", "outer", "elementwise")
    if which == "own":
        require(len(x) >= 3)
        pattern = f"{letters},{letters[:-2]}z{letters[-1]}->{letters[:-1]}z"
        return Code(forward=[f"x = torch.einsum('{pattern}', x, torch.tanh(x)) / {x[-1]}.0"])
    if which == "outer":
        require(len(x) <= 3)
        size = d.size("size", 1, 4)
        init = [f"self.{name} = nn.Parameter(torch.ones({size}))"]
        return Code(init, [f"x = torch.einsum('{letters},z->{letters}z', x, self.{name})"])
    if which == "elementwise":
        init = [f"self.{name} = nn.Parameter(torch.ones({x[1]}, {x[-1]}))"] if len(x) > 2 else None
        require(init is not None)
        pattern = f"{letters},{letters[1]}{letters[-1]}->{letters[0]}{letters[2:]}{letters[1]}"
        return Code(init, [f"x = torch.einsum('{pattern}', x, self.{name})"])
    axis = len(x) - 1 if which == "last" else d.size("axis", 1, len(x) - 1)
    size = d.size("size", 1, 6, simplest=3)
    shape = [x[axis], size]
    summed, result = letters[axis], letters[:axis] + "z" + letters[axis + 1 :]
    right = f"{summed}z"
    if which == "two" and len(x) > 2:
        more = 1 if axis != 1 else len(x) - 1
        shape.append(x[more])
        right += letters[more]
        if d.flag("sum_both"):
            result = result.replace(letters[more], "")
    init = [f"self.{name} = nn.Parameter(torch.randn({sizes(shape)}) / {max(x[axis], 1)} ** 0.5)"]
    return Code(init, [f"x = torch.einsum('{letters},{right}->{result}', x, self.{name})"])


def product(d: Draw, x: Shape, c: Context) -> Code:
    which = d.of("which", "gram", "parameter", "batched", "bilinear", "distance")
    name = c.name("product")
    if which == "gram":
        require(len(x) >= 3)
        return Code(forward=[f"x = x @ torch.tanh(x).transpose(-1, -2) / {x[-1]}.0"])
    if which == "batched":
        require(len(x) >= 3)
        rows = d.size("rows", 1, 5, simplest=2)
        init = [f"self.{name} = nn.Parameter(torch.randn({rows}, {x[-2]}) / {x[-2]} ** 0.5)"]
        return Code(init, [f"x = self.{name} @ x"])
    if which == "bilinear":
        require(x[-1] <= 12)
        return Code(
            [f"self.{name} = nn.Bilinear({x[-1]}, {x[-1]}, {d.size('features', 1, 4)})"],
            [f"x = self.{name}(x, x.sin())"],
        )
    if which == "distance":
        require(len(x) >= 3)
        rows = d.size("rows", 1, 5, simplest=2)
        init = [f"self.{name} = nn.Parameter(torch.randn({rows}, {x[-1]}))"]
        return Code(
            init, [f"x = torch.cdist(x, self.{name}.expand({sizes(x[:-2])}, {rows}, {x[-1]})) / {x[-1]} ** 0.5"]
        )
    init = [f"self.{name} = nn.Parameter(torch.randn({x[-1]}, {d.size('features', 1, 6)}) / {x[-1]} ** 0.5)"]
    return Code(init, [f"x = torch.matmul(x, self.{name})"])


def linear_algebra(d: Draw, x: Shape, c: Context) -> Code:
    require(len(x) >= 3 and x[-2] <= 8)
    size = x[-2]
    matrix = [f"matrix = x @ x.transpose(-1, -2) / {x[-1]}.0 + 1.5 * torch.eye({size}, dtype=x.dtype)"]
    straight = d.flag("straight")
    if straight:
        require(x[-1] == x[-2])
        matrix = [f"matrix = 0.3 * torch.tanh(x) + 2.0 * torch.eye({size}, dtype=x.dtype)"]
    which = d.of("which", "inv", "slogdet", "det", "solve", "cholesky", "matrix_exp")
    text = {
        "inv": "torch.linalg.inv(matrix)",
        "slogdet": "torch.linalg.slogdet(matrix)[1].unsqueeze(-1) + x.mean(-1)",
        "det": f"(torch.linalg.det(matrix) / 2.0 ** {size}).unsqueeze(-1) + x.mean(-1)",
        "solve": "torch.linalg.solve(matrix, x)",
        "cholesky": "torch.linalg.cholesky(matrix)",
        "matrix_exp": "torch.matrix_exp(matrix / 4)",
    }[which]
    require(which != "cholesky" or not straight)
    return Code(forward=[*matrix, f"x = {text}"])


BLOCKS = {
    "linear": (linear, 6),
    "again": (again, 2),
    "tied": (tied, 1),
    "attention": (attention, 2.5),
    "bare_attention": (bare_attention, 1.5),
    "multihead": (multihead, 1),
    "encoder_layer": (encoder_layer, 1),
    "recurrent": (recurrent, 2),
    "cell": (cell, 0.7),
    "positions": (positions, 1),
    "lookup": (lookup, 1),
    "einsum": (einsum, 2.5),
    "product": (product, 2),
    "linear_algebra": (linear_algebra, 0.7),
}
