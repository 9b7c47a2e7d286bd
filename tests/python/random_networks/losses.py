"""Losses of a tower's result, each with the target that it needs in the batch."""

from __future__ import annotations

from tests.python.random_networks.blocks_convolution import require
from tests.python.random_networks.draw import Draw
from tests.python.random_networks.network import Code, Context, Shape
from tests.python.random_networks.text import call, sizes


def target(c: Context, x: Shape, text: str) -> tuple[str, dict[str, str]]:
    """What the loss reads, and the entry of the batch."""
    require(x[0] == c.samples)
    entry = c.entry("target")
    return f"batch['{entry}']", {entry: text}


def alone(d: Draw, x: Shape, c: Context) -> Code:
    """A loss without a target, which any result has."""
    text = d.of(
        "function", "x.square().mean()", "x.abs().mean()", "x.flatten().logsumexp(0)", "x.sin().sum() / 10", "x.std()",
        "torch.linalg.vector_norm(x)", "(x - x.roll(1, 0)).square().mean()", "F.softplus(x).mean()",
        "x.square().flatten(1).sum(1).mean()",
    )  # fmt: skip
    require(text != "x.std()" or len(x) > 1)
    return Code(forward=[f"loss = {text}"])


def regression(d: Draw, x: Shape, c: Context) -> Code:
    function = d.of(
        "function", "F.mse_loss", "F.l1_loss", "F.smooth_l1_loss", "F.huber_loss", "F.poisson_nll_loss",
        "F.soft_margin_loss", "F.hinge_embedding_loss",
    )  # fmt: skip
    signs = function in ("F.soft_margin_loss", "F.hinge_embedding_loss")
    text = f"torch.randn({c.whole}, {sizes(x[1:])})" + (".sign()" if signs else "")
    what, batch = target(c, x, text)
    words = {"reduction": (d.of("reduction", "'mean'", "'sum'"), "'mean'")}
    if function == "F.smooth_l1_loss":
        words["beta"] = (d.of("beta", 1.0, 0.3), 1.0)
    if function == "F.huber_loss":
        words["delta"] = (d.of("beta", 1.0, 0.3), 1.0)
    factor = " / 30" if words["reduction"][0] == "'sum'" else ""
    return Code(forward=[f"loss = {call(function, 'x', what, **words)}{factor}"], batch=batch)


def classes(d: Draw, x: Shape, c: Context) -> Code:
    require(x[1] >= 2)
    shape = sizes([c.whole, *x[2:]]) + ","
    what, batch = target(c, x, f"torch.randint(0, {x[1]}, ({shape}))")
    words = {"reduction": (d.of("reduction", "'mean'", "'sum'"), "'mean'")}
    if d.flag("weighted"):
        weights = "[" + ", ".join(f"{0.5 + 0.25 * index}" for index in range(x[1])) + "]"
        words["weight"] = (f"torch.tensor({weights}, dtype=x.dtype)", None)
    if d.flag("ignored"):
        # Never all: a mean over nothing is not a number.
        words["ignore_index"] = (0, -100)
        kept = f".index_fill(0, torch.arange(0, {c.whole}, {c.samples}), {x[1] - 1})"
        batch = {entry: text + kept for entry, text in batch.items()}
    factor = " / 30" if words["reduction"][0] == "'sum'" else ""
    if d.flag("by_hand"):
        return Code(
            forward=[f"loss = {call('F.nll_loss', 'F.log_softmax(x, dim=1)', what, **words)}{factor}"], batch=batch
        )
    words["label_smoothing"] = (d.of("smoothing", 0.0, 0.1), 0.0)
    return Code(forward=[f"loss = {call('F.cross_entropy', 'x', what, **words)}{factor}"], batch=batch)


def probabilities(d: Draw, x: Shape, c: Context) -> Code:
    which = d.of("which", "bce_logits", "bce", "kl", "cross_entropy", "multilabel_soft")
    shape = f"{c.whole}, {sizes(x[1:])}"
    if which in ("kl", "cross_entropy"):
        require(x[1] >= 2)
        what, batch = target(c, x, f"torch.randn({shape}).softmax(1)")
        if which == "kl":
            reduction = d.of("reduction", "'batchmean'", "'mean'", "'sum'")
            return Code(
                forward=[f"loss = F.kl_div(F.log_softmax(x, dim=1), {what}, reduction={reduction})"], batch=batch
            )
        return Code(forward=[f"loss = F.cross_entropy(x, {what})"], batch=batch)
    if which == "multilabel_soft":
        require(len(x) == 2)
        what, batch = target(c, x, f"(torch.rand({shape}) < 0.5).float()")
        return Code(forward=[f"loss = F.multilabel_soft_margin_loss(x, {what})"], batch=batch)
    what, batch = target(c, x, f"torch.rand({shape})")
    if which == "bce":
        return Code(forward=[f"loss = F.binary_cross_entropy(torch.sigmoid(x), {what})"], batch=batch)
    words = {}
    if d.flag("positive"):
        words["pos_weight"] = (f"torch.full(({x[-1]},), 1.7, dtype=x.dtype)", None)
    return Code(forward=[f"loss = {call('F.binary_cross_entropy_with_logits', 'x', what, **words)}"], batch=batch)


def distances(d: Draw, x: Shape, c: Context) -> Code:
    which = d.of("which", "cosine", "gaussian", "triplet", "ranking", "multi_margin", "embedding", "pairwise")
    shape = f"{c.whole}, {sizes(x[1:])}"
    if which == "multi_margin":
        require(len(x) == 2 and x[1] >= 2)
        what, batch = target(c, x, f"torch.randint(0, {x[1]}, ({c.whole},))")
        return Code(forward=[f"loss = F.multi_margin_loss(x, {what})"], batch=batch)
    what, batch = target(c, x, f"torch.randn({shape})")
    if which == "embedding":
        require(len(x) == 2 and x[1] >= 2)
        text = f"loss = F.cosine_embedding_loss(x, {what}, torch.ones({x[0]}, dtype=x.dtype), margin=0.1)"
        return Code(forward=[text], batch=batch)
    return Code(
        forward=[
            {
                "cosine": f"loss = 1 - F.cosine_similarity(x, {what}, dim={d.of('dim', 1, -1)}, eps=0.01).mean()",
                "gaussian": f"loss = F.gaussian_nll_loss(x, {what}, F.softplus(x) + 0.2)",
                "triplet": f"loss = F.triplet_margin_loss(x, {what}, {what}.flip(0) + 0.5, margin=3.0)",
                "ranking": f"loss = F.margin_ranking_loss(x, {what}, {what}.sign(), margin=0.3)",
                "pairwise": f"loss = F.pairwise_distance(x, {what}).mean()",
            }[which]
        ],
        batch=batch,
    )


LOSSES = {
    "alone": (alone, 2),
    "regression": (regression, 3),
    "classes": (classes, 4),
    "probabilities": (probabilities, 1.5),
    "distances": (distances, 1.5),
}
