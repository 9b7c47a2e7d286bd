"""An optimizer whose updates happen at a hub, and which is torch's to schedulers and checkpoints."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator

import torch

from tesser.hub.error import HubInputError
from tesser.hub.exchange import Exchange
from tesser.hub.guarded import set_grad
from tesser.hub.settings import Numbers, ParameterGroup, algorithm_of, group_of, numbers_of


class HubOptimizer(torch.optim.Optimizer):
    """What tesser.hub.wrap gives back in the place of an SGD, Adam or AdamW. param_groups are those of that optimizer,
    so schedulers of either work; state_dict() has torch's format, and the state is at the hub."""

    is_of_hub = True
    # Of torch.amp.GradScaler, which then tells step() of itself: what it does to gradients leaves their version alone.
    _step_supports_amp_scaling = True

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        exchange: Exchange,
        model: torch.nn.Module,
        left_out: dict[str, torch.Tensor],
        overlap: bool,
        undo: Callable,
    ) -> None:
        self._is_complete = False
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self._is_complete = True
        self.param_groups = optimizer.param_groups
        self._optimizer = optimizer
        self._exchange = exchange
        self._model = model
        self._left_out = left_out
        self._members = _members(self.param_groups)
        self._overlap = overlap
        self._undo = undo
        self._algorithm = algorithm_of(optimizer)
        # Parameters that no module has, and that nothing therefore waits for.
        owned = {id(parameter) for parameter in model.parameters()}
        self._loose = [key for each, key in exchange.key_of.items() if each not in owned]

    @property
    def steps_done(self) -> int:
        """Steps since the job began. 0 at first, but of a worker that comes back (on_loss="wait") the step to go on
        from."""
        return self._exchange.steps_done

    @property
    def is_return(self) -> bool:
        """Whether this worker was lost and has come back."""
        return self._exchange.is_return

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of a backward() within are kept and added up; step(), or a backward() without, gives them."""
        with self._exchange.paused():
            yield

    def step(self, closure: Callable[[], torch.Tensor] | None = None) -> torch.Tensor | None:
        """Gives what is left and commits. Weights arrive from now on; each layer's forward waits for its own."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._check_groups()
        numbers = [numbers_of(self._algorithm, group) for group in self.param_groups]
        if self._exchange.buffers is not None:
            numbers.append(Numbers(learning_rate=1.0))
        self._exchange.step(numbers)
        for key in self._loose:
            self._exchange.wait(key)
        if not self._overlap:
            self._exchange.wait_all()
            self._exchange.take_buffers()
        self._optimizer._opt_called = True  # a scheduler of that one asks
        return loss

    def synchronize(self) -> None:
        """Waits for all weights: before parameters are touched other than by the model's modules."""
        self._exchange.wait_all()

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._exchange.drop_gradients()
        if set_to_none:
            # Past the parameters' own `grad`, which waits until the hub has read it.
            for group in self.param_groups:
                for each in group["params"]:
                    set_grad(each, None)
        else:
            super().zero_grad(False)

    def state_dict(self) -> dict[str, object]:
        """The state is fetched from the hub. Of any replica, whatever the others do meanwhile."""
        self.state = defaultdict(dict, self._exchange.read_state())
        try:
            return super().state_dict()
        finally:
            self.state = defaultdict(dict)

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        """Every replica loads; the job then begins anew with rank 0's."""
        self._exchange.go_away()
        groups = self.param_groups
        super().load_state_dict(state_dict)
        self._optimizer.__setstate__({"state": self.state, "param_groups": self.param_groups})  # old files lack keys
        for group, loaded in zip(groups, self.param_groups):
            group.clear()
            group.update(loaded)
        self.param_groups = self._optimizer.param_groups = groups
        self._exchange.set_state(dict(self.state))
        self.state = defaultdict(dict)
        self._optimizer.state = defaultdict(dict)
        self._check_groups()

    def add_param_group(self, param_group: dict[str, object]) -> None:
        if self._is_complete:
            raise HubInputError("a hub knows a job's parameters from its begin: add groups before tesser.hub.wrap")
        super().add_param_group(param_group)

    def broadcast_buffers(self) -> None:
        """Rank 0's buffers (running statistics, say) become everybody's. Every replica calls it."""
        self._exchange.give_to_all(self._model.buffers())

    def paths(self) -> list[str]:
        """How each hub is reached, for people."""
        return self._exchange.paths()

    def close(self) -> None:
        """Leaves the job; parameters are this process's own again, and the model is a plain one. The end of the process
        does as much, unless it ends by an exception, which the other replicas take for a loss."""
        self._exchange.close()
        self._undo()

    def _check_groups(self) -> None:
        if self._optimizer.param_groups is not self.param_groups or any(self._optimizer.state.values()):
            raise HubInputError(
                "the optimizer that was given to tesser.hub.wrap was used\nWhat to do: load checkpoints into the "
                "one that it gave back, and step() that one"
            )
        if hasattr(self, "found_inf"):
            raise HubInputError(
                "torch.amp.GradScaler scales gradients that the hub has already\nWhat to do: autocast to bfloat16, "
                "which needs no scaler, or GradScaler(enabled=False)"
            )
        if _members(self.param_groups) != self._members:
            raise HubInputError(
                "parameter groups have other parameters than at tesser.hub.wrap, of which the hub knows nothing\nWhat "
                "to do: close() the optimizer, and wrap model and optimizer again"
            )
        for name, parameter in self._left_out.items():
            if parameter.requires_grad:
                raise HubInputError(
                    f"{name} needs a gradient now, and did not at tesser.hub.wrap, so the hub does not train it\n"
                    "What to do: keep the optimizer's state_dict() and close() it, then load that into a new optimizer "
                    "and wrap both again"
                )
        for number, (group, begun) in enumerate(zip(self.param_groups, self._exchange.settings.groups)):
            now: ParameterGroup = group_of(self._algorithm, group)
            if now != begun:
                changed = ", ".join(
                    f"{name} from {was} to {vars(now)[name]}"
                    for name, was in vars(begun).items()
                    if vars(now)[name] != was
                )
                raise HubInputError(
                    f"parameter group {number} changed {changed}, which a job cannot\nWhat to do: close() the "
                    "optimizer, and wrap model and optimizer again"
                )


def _members(groups: list[dict]) -> list[list[int]]:
    """Which parameters are in which group."""
    return [[id(each) for each in group["params"]] for group in groups]
