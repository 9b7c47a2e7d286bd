"""From a network as data to its step file, and the drawing of networks, which is the same thing with choices made on
the way: each block is tried on real tensors as it is added, so its shape is known to the next one.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.python.random_networks import blocks_convolution, blocks_normalization, blocks_sequence, blocks_shape
from tests.python.random_networks.draw import Draw, Options
from tests.python.random_networks.losses import LOSSES
from tests.python.random_networks.network import Block, Code, Context, DoesNotFit, Module, Network, Tower
from tests.python.random_networks.text import sizes
from tests.python.random_networks.training import Training, training

BLOCKS = {
    **blocks_convolution.BLOCKS, **blocks_normalization.BLOCKS, **blocks_sequence.BLOCKS, **blocks_shape.BLOCKS,
}  # fmt: skip
JOINED = "joined"
# What a tower is mostly made of: the kind of its first block, and what the weights of kinds are multiplied by. Half of
# them begin with a convolution, after which memory may lie channels-last.
STYLES = (
    (None, {}),
    ("convolution", {}),
    ("convolution", dict.fromkeys(blocks_shape.BLOCKS, 0.3) | dict.fromkeys(blocks_normalization.BLOCKS, 1.5)),
    ("convolution", dict.fromkeys(blocks_shape.BLOCKS, 0.2) | dict.fromkeys(blocks_convolution.BLOCKS, 2.0)),
    (None, dict.fromkeys(blocks_sequence.BLOCKS, 3.0) | dict.fromkeys(blocks_shape.BLOCKS, 0.2)),
    (None, dict.fromkeys(blocks_shape.BLOCKS, 0.4) | dict.fromkeys(blocks_convolution.BLOCKS, 3.0)),
)
MOST_ELEMENTS = 3000
LARGEST = 50.0
TRIES = 12
BATCHES = 16  # of the data


@dataclass
class _Lines:
    init: list[str] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)
    batch: dict[str, str] = field(default_factory=dict)

    def add(self, code: Code) -> None:
        self.init += code.init
        self.forward += code.forward
        self.batch |= code.batch


class _Trial:
    """A tower as it grows: its lines so far, and `x` after them."""

    def __init__(self, number: int, settings: Training) -> None:
        self.context = Context(number, settings.samples, settings.accumulate)
        self.lines = _Lines()
        self._names = {"torch": torch, "nn": nn, "F": F, "self": nn.Module(), "batch": {}}

    @property
    def x(self) -> Tensor:
        return self._names["x"]

    @property
    def loss(self) -> Tensor:
        return self._names["loss"]

    @property
    def has_parameters(self) -> bool:
        return any(True for _ in self._names["self"].parameters())

    def try_out(self, code: Code) -> None:
        """Adds the block's lines if they run and give something sensible; else DoesNotFit, and nothing is added."""
        names = dict(self._names)
        before = names.get("x")
        try:
            with torch.no_grad():
                for entry, text in code.batch.items():
                    names["batch"][entry] = eval(text, names)[: self.context.samples]
                exec("\n".join(code.init), names)
                exec("\n".join(code.forward), names)
        except DoesNotFit:
            raise
        except Exception as error:  # whatever PyTorch raises for what does not fit
            raise DoesNotFit from error
        after = names["x"]
        if not (isinstance(after, Tensor) and 2 <= after.dim() <= 5 and 0 < after.numel() <= MOST_ELEMENTS):
            raise DoesNotFit
        if after.shape[0] < 1 or not after.isfinite().all() or after.abs().max() > LARGEST:
            raise DoesNotFit
        if "loss" in names and names["loss"].shape != ():
            raise DoesNotFit
        self._names = names
        self.lines.add(code)
        modules = self.context.modules
        if code.init and modules and not modules[-1].after and before is not None:
            modules[-1] = Module(modules[-1].name, modules[-1].kind, tuple(before.shape), tuple(after.shape))


def _input(d: Draw, c: Context) -> Code:
    """Where a tower begins: numbers of two to five dimensions, or words."""
    name = c.entry("x")
    if d.flag("words"):
        count = d.size("vocabulary", 2, 9, simplest=3)
        length, width = d.size("length", 1, 6, simplest=3), d.size("width", 1, 8, simplest=4)
        batch = {name: f"torch.randint(0, {count}, ({c.whole}, {length}))"}
        return Code([f"self.words = nn.Embedding({count}, {width})"], [f"x = self.words(batch['{name}'])"], batch)
    rank = d.of("rank", 2, 3, 4, 4, 4, 5)
    shape = [d.size("channels", 1, 8, simplest=4)]
    shape += [d.size(f"size{index}", 1, {3: 9, 4: 7, 5: 4}[rank], simplest=3) for index in range(rank - 2)]
    return Code([], [f"x = batch['{name}']"], {name: f"torch.randn({c.whole}, {sizes(shape)})"})


def _join(d: Draw, kept: str, before: Tensor, after: Tensor) -> str:
    if before.shape == after.shape:
        return f"x = {d.of('join', f'x + {kept}', f'x * {kept}', f'torch.cat([x, {kept}], dim=1)', f'{kept} - x')}"
    if before.dim() == after.dim() and before.shape[0] == after.shape[0]:
        return f"x = x + {kept}.mean({tuple(range(1, before.dim()))}, keepdim=True)"
    if before.shape[0] == after.shape[0]:
        return f"x = torch.cat([x.flatten(1), {kept}.flatten(1)], dim=1)"
    return f"x = x + 0.3 * {kept}.mean()"


def _add(trial: _Trial, block: Block, random: Random | None) -> None:
    """Adds a block of the network, drawing its options where there is a `random`."""
    if block.kind == JOINED:
        kept, before = trial.context.name("kept"), trial.x
        trial.try_out(Code(forward=[f"{kept} = x"]))
        for inner in block.inner:
            _add(trial, inner, random)
        d = Draw(block.options, random)
        trial.try_out(Code(forward=[_join(d, kept, before, trial.x)]))
        return
    d = Draw(block.options, random)
    modules, blocks = list(trial.context.modules), trial.context.blocks
    try:
        trial.try_out(BLOCKS[block.kind][0](d, tuple(trial.x.shape), trial.context))
    except DoesNotFit:
        trial.context.modules, trial.context.blocks = modules, blocks
        raise
    d.drop_unused()


def _drawn_blocks(trial: _Trial, random: Random, count: int, weights: list[float], nested: bool = False) -> list[Block]:
    kinds = list(BLOCKS)
    blocks: list[Block] = []
    tries = 0
    while len(blocks) < count and tries < TRIES * count:
        tries += 1
        if not nested and random.random() < 0.04:
            kept, before = trial.context.name("kept"), trial.x
            trial.try_out(Code(forward=[f"{kept} = x"]))
            joined = Block(JOINED, {}, _drawn_blocks(trial, random, random.randint(1, 3), weights, nested=True))
            try:
                trial.try_out(Code(forward=[_join(Draw(joined.options, random), kept, before, trial.x)]))
            except DoesNotFit:
                joined.options.clear()
                trial.try_out(Code(forward=["x = torch.tanh(x)"]))
                blocks += [*joined.inner, Block("activation")]
                continue
            blocks.append(joined)
            continue
        block = Block(random.choices(kinds, weights)[0])
        try:
            _add(trial, block, random)
        except DoesNotFit:
            continue
        blocks.append(block)
    return blocks


def _add_loss(trial: _Trial, loss: Block, random: Random | None) -> None:
    d = Draw(loss.options, random)
    trial.try_out(LOSSES[loss.kind][0](d, tuple(trial.x.shape), trial.context))
    if not trial.loss.isfinite():
        raise DoesNotFit


def _drawn_tower(number: int, settings: Training, random: Random, blocks: int) -> tuple[Tower, _Trial]:
    first, factors = random.choice(STYLES)
    weights = [weight * factors.get(kind, 1.0) for kind, (_, weight) in BLOCKS.items()]
    while True:
        trial = _Trial(number, settings)
        tower = Tower({}, [], Block("alone"))
        torch.manual_seed(random.randrange(2**31))
        try:
            trial.try_out(_input(Draw(tower.input, random), trial.context))
            if first is not None:
                tower.blocks.append(Block(first))
                _add(trial, tower.blocks[0], random)
            tower.blocks += _drawn_blocks(trial, random, blocks, weights)
            if not trial.has_parameters:
                tower.blocks.append(Block("linear"))
                _add(trial, tower.blocks[-1], random)
            for _ in range(TRIES):
                tower.loss = Block(random.choices(list(LOSSES), [weight for _, weight in LOSSES.values()])[0])
                try:
                    _add_loss(trial, tower.loss, random)
                except DoesNotFit:
                    continue
                return tower, trial
        except DoesNotFit:
            continue


def drawn(seed: int, towers: int) -> Network:
    """A network of so many towers; the same for the same seed."""
    random = Random(f"random network {seed}")
    options: Options = {}
    settings = training(Draw(options, random))
    network = Network([], options, seed % 2**31)
    for number in range(towers):
        tower, _ = _drawn_tower(number, settings, random, random.choice((1, 2, 3, 3, 4, 5, 6, 8)))
        network.towers.append(tower)
    return network


def redrawn(network: Network, number: int, again: int) -> None:
    """Another tower in the place of one that tells nothing."""
    random = Random(f"random network {network.seed} {number} {again}")
    settings = training(Draw(network.training))
    network.towers[number], _ = _drawn_tower(number, settings, random, random.choice((1, 2, 3, 4, 5)))


def _built(tower: Tower, number: int, settings: Training, seed: int) -> _Trial:
    trial = _Trial(number, settings)
    torch.manual_seed(seed)
    d = Draw(tower.input)
    trial.try_out(_input(d, trial.context))
    d.drop_unused()
    for block in tower.blocks:
        _add(trial, block, None)
    _add_loss(trial, tower.loss, None)
    return trial


_STEP_FILE = """\
import sys
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

import tesser
from tesser import schedules

{towers}
class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.towers = nn.ModuleList([{names}])

    def forward(self, batch):
        return [tower(batch) for tower in self.towers]


def loss(model, batch):
    losses = model(batch)
    return sum(losses), {{f"tower{{number}}": loss.detach() for number, loss in enumerate(losses)}}


def batch(number):
    torch.manual_seed({seed} + number)
    return {{
{batch}
    }}


def step():
    torch.manual_seed({seed})
    model = Network()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
{optimizer}
    return tesser.Step(model, loss, batch(0), optimizer{step})


if __name__ == "__main__":  # python STEP.py DIR: writes the data
    Path(sys.argv[1]).mkdir()
    batches = [batch(number) for number in range(1, {batches})]
    for name in batches[0]:
        numpy.save(f"{{sys.argv[1]}}/{{name}}.npy", torch.cat([each[name] for each in batches]).numpy())
"""
_TOWER = """
class Tower{number}(nn.Module):
    def __init__(self):
        super().__init__()
{init}
    def forward(self, batch):
{forward}
        return loss

"""


def _indented(lines: list[str], depth: int) -> str:
    return "".join("    " * depth + line + "\n" for line in lines)


def source(network: Network, heading: str = "A random network.") -> str:
    """The text of the step file; DoesNotFit where a block cannot take what stands before it."""
    options = Draw(network.training)
    settings = training(options)
    options.drop_unused()
    trials = [_built(tower, number, settings, network.seed) for number, tower in enumerate(network.towers)]
    towers = [
        _TOWER.format(
            number=number, init=_indented(trial.lines.init, 2), forward=_indented(trial.lines.forward, 2).rstrip("\n")
        )
        for number, trial in enumerate(trials)
    ]
    entries = [f'"{entry}": {text},' for trial in trials for entry, text in trial.lines.batch.items()]
    return f'"""{heading}"""\n\n' + _STEP_FILE.format(
        towers="".join(towers),
        names=", ".join(f"Tower{number}()" for number in range(len(trials))),
        seed=network.seed,
        batch=_indented(entries, 2).rstrip("\n"),
        optimizer=_indented([*settings.before, *settings.optimizer], 1).rstrip("\n"),
        step=settings.step,
        batches=BATCHES + 1,
    )


def load(path: Path) -> ModuleType:
    """The module of a step file."""
    spec = importlib.util.spec_from_file_location(f"random_network_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module
