"""Data parallel training of a PyTorch model through a parameter hub (docs/hub_pytorch.md)."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import weakref
from collections import Counter
from collections.abc import Sequence

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tesser.hub import freed_memory, waiting
from tesser.hub.buffers import Buffers
from tesser.hub.error import HubError, HubInputError
from tesser.hub.exchange import Exchange
from tesser.hub.guarded import is_guarded, refuse_other_optimizers
from tesser.hub.optimizer import HubOptimizer
from tesser.hub.rendezvous import meet
from tesser.hub.settings import Key, ParameterGroup, Settings, algorithm_of, group_of
from tesser.hub.tensors import check_apart, check_parameter, key_name


def wrap(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    hub: str | Sequence[str],
    job: str | None = None,
    nonce: str | None = None,
    token: str | None = None,
    rank: int | None = None,
    replicas: int | None = None,
    average: bool = True,
    clip_norm: float = 0.0,
    gradient_dtype: torch.dtype = torch.float32,
    on_loss: str = "stop",
    overlap: bool = True,
    broadcast_buffers: bool = True,
    racks: int = 1,
    one_machine: bool | None = None,
    chunk_bytes: int = 256 * 1024,
    patience: float = 60.0,
    network: bool = False,
) -> tuple[torch.nn.Module, HubOptimizer]:
    """Makes this process a replica of a job: its gradients go to `hub`, which updates the weights of all replicas.

    Gives back the same model, whose parameters now lie where the hub puts new weights, and an optimizer to use instead
    of `optimizer`. Every replica calls this at the same place with the same model; rank 0's weights, buffers and
    optimizer state become everybody's. Blocks until all are there, for `patience` seconds at most. Errors are HubError.

    hub: "http://HOST:PORT" of `tesser hub serve`, a list of them, or "colocated": a hub in every process, each with a
        share of the weights.
    job, nonce: the job's name, and a secret of 8 or more characters that its replicas know; else nonce is from
        TESSER_HUB_NONCE, or rank 0 chooses and tells the others through the store at MASTER_ADDR:MASTER_PORT.
    token: of hubs that ask for one; else TESSER_HUB_TOKEN.
    rank, replicas: else RANK and WORLD_SIZE, as torchrun sets them.
    average: as DistributedDataParallel does; else gradients are summed.
    clip_norm: the norm to clip the whole averaged gradient to; 0: none.
    gradient_dtype: float32, bfloat16 or float16, as gradients travel. They are added in float32.
    on_loss: of a replica: "stop" the job with an error that names it, "continue" with those left, or "wait" until it
        is started again and goes on at optimizer.steps_done.
    overlap: step() returns at once, and each module waits for its own weights when they are used.
    broadcast_buffers: before the first forward after each step buffers become rank 0's, as DistributedDataParallel has
        it; else each replica keeps its own.
    racks: that the replicas are divided among, in order and evenly. `hub` then lists the hubs of the first rack,
        then as many of the next, and so on; only sums of a rack's gradients travel between racks.
    one_machine: whether all replicas are on one machine and may share one copy of the weights; else LOCAL_WORLD_SIZE
        tells. Matters to several hubs only.
    network: never shared memory, for tests.
    """
    algorithm = algorithm_of(optimizer)
    parameters, keys, left_out = _tensors(model, optimizer)
    meeting = meet(
        hub,
        job=job,
        nonce=nonce,
        token=token,
        rank=rank,
        replicas=replicas,
        one_machine=one_machine,
        on_loss=on_loss,
        patience=patience,
        network=network,
    )
    groups = tuple(group_of(algorithm, group) for group in optimizer.param_groups)
    buffers = Buffers(model, gradient_dtype) if broadcast_buffers and meeting.replicas > 1 else None
    if buffers is not None and buffers.elements == 0:
        buffers = None
    if buffers is not None:
        keys += (Key("buffers of the model", buffers.elements, len(groups)),)
        groups += (ParameterGroup("assign"),)
    settings = Settings(
        replicas=meeting.replicas,
        groups=groups,
        keys=keys,
        average=average,
        clip_norm=clip_norm,
        gradient_dtype=gradient_dtype,
        on_loss=on_loss,
        racks=racks,
        one_machine=meeting.one_machine,
        chunk_bytes=chunk_bytes,
    )
    freed_memory.keep()
    exchange = Exchange(parameters, buffers, settings, meeting, patience, network)
    exchange.set_state(dict(optimizer.state))
    exchange.start()
    exchange.take_buffers()
    _open.add(exchange)
    if on_loss != "wait":
        frozen = [each for each in model.parameters() if id(each) not in exchange.key_of and not is_guarded(each)]
        exchange.give_to_all([*frozen, *(model.buffers() if buffers is None else ())])
    optimizer.state.clear()
    _refuse_other_optimizers()
    handles: list = list(waiting.install(model, exchange))
    handles += [each.register_post_accumulate_grad_hook(exchange.take_gradient) for each in parameters]

    def undo() -> None:
        _open.discard(exchange)
        waiting.uninstall(model, exchange, handles)

    return model, HubOptimizer(optimizer, exchange, model, left_out, overlap, undo)


def _tensors(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[list[torch.Tensor], tuple[Key, ...], dict[str, torch.Tensor]]:
    """What the optimizer updates, in the order in which the model needs it, a tied parameter once; and by name what it
    has and does not update, since it is frozen."""
    group_of_parameter = {
        id(each): number for number, group in enumerate(optimizer.param_groups) for each in group["params"]
    }
    named = [(name, each) for name, each in model.named_parameters() if id(each) in group_of_parameter]
    seen = {id(each) for _, each in named}
    for number, group in enumerate(optimizer.param_groups):
        for index, each in enumerate(group["params"]):
            if id(each) not in seen:
                named.append((f"parameter {index} of group {number}", each))
    named = [(name, each) for name, each in named if each.numel() != 0]
    frozen = {name: each for name, each in named if not each.requires_grad}
    named = [(name, each) for name, each in named if each.requires_grad]
    if not named:
        raise HubInputError("no parameter of the optimizer needs a gradient")
    for name, each in named:
        check_parameter(name, each)
    names = [name for name, _ in named]
    parameters = [each for _, each in named]
    check_apart(names, parameters)
    rows = _row_elements(model)
    keys = tuple(
        Key(key_name(name, each), each.numel(), group_of_parameter[id(each)], rows.get(id(each), 0))
        for name, each in named
    )
    return parameters, keys, frozen


def _row_elements(model: torch.nn.Module) -> dict[int, int]:
    """Of parameters whose gradients come as rows: weights of embeddings with sparse=True that nothing else has."""
    owners = Counter(id(each) for module in model.modules() for each in module._parameters.values() if each is not None)
    return {
        id(module.weight): module.weight.shape[1]
        for module in model.modules()
        if isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag)
        and module.sparse
        and owners[id(module.weight)] == 1
        and module.weight.is_contiguous()
    }


@functools.cache
def _refuse_other_optimizers() -> None:
    register_optimizer_step_pre_hook(refuse_other_optimizers)


_open: weakref.WeakSet[Exchange] = weakref.WeakSet()


@atexit.register
def _leave() -> None:
    # After an exception the others shall take it for the loss that it is.
    if hasattr(sys, "last_value"):
        return
    for exchange in list(_open):
        try:
            if exchange.process == os.getpid():  # a child of fork has no part in the job
                exchange.leave_at_exit()
        except HubError as error:
            print(f"tesser.hub: {error}", file=sys.stderr)
