"""The parameters of one model in the memory where the hub puts weights, their gradients in memory that the hub reads,
and who has to wait for what."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from tesser.hub.client import Client, Server
from tesser.hub.error import HubError, HubInputError
from tesser.hub.rendezvous import Meeting
from tesser.hub.settings import Key, Numbers, Settings

# A worker that comes back may be faster than the news of its loss.
RETURN_SECONDS = 15.0
# Between two looks whether the others have left.
LOOK_SECONDS = 0.02
# Of a job that gives tensors to all.
VALUE_CHUNK_BYTES = 1 << 20

State = dict[torch.Tensor, dict[str, object]]


def check_parameter(name: str, parameter: torch.Tensor) -> None:
    """Whether it can be exchanged."""
    if parameter.device.type != "cpu":
        raise HubInputError(f"{name} is on {parameter.device}; a hub takes parameters in the CPU's memory")
    if parameter.dtype != torch.float32:
        raise HubInputError(
            f"{name} is {parameter.dtype}; a hub takes float32 parameters (gradient_dtype= makes gradients travel as "
            "bfloat16 or float16)"
        )
    if parameter.layout is not torch.strided or not _is_dense(parameter):
        raise HubInputError(f"{name} has holes or overlaps in memory\nWhat to do: make it contiguous")


def _is_dense(tensor: torch.Tensor) -> bool:
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def check_apart(names: Sequence[str], parameters: Sequence[torch.Tensor]) -> None:
    """Two parameters in the same memory would come apart."""
    ranges = sorted((each.data_ptr(), each.numel() * 4, name) for name, each in zip(names, parameters))
    for (begin, bytes_, first), (following, _, second) in zip(ranges, ranges[1:]):
        if begin + bytes_ > following:
            raise HubInputError(
                f"{first} and {second} are two parameters in the same memory\nWhat to do: make them one: assign the "
                "same torch.nn.Parameter to both modules"
            )


def key_name(name: str, parameter: torch.Tensor) -> str:
    """All replicas must have the elements in the same order, so another order is another name."""
    return name if parameter.is_contiguous() else f"{name} with strides {tuple(parameter.stride())}"


@dataclass
class _Place:
    """Of one key."""

    parameter: torch.Tensor
    weights: torch.Tensor  # shaped as the parameter, in the hub's or the client's memory
    gradient: torch.Tensor  # likewise, of the gradients' dtype
    given: torch.Tensor | None = None  # the parameter's .grad when it was pushed in this step
    version: int = 0  # of `given` then


class Exchange:
    """Between start() and go_away() the parameters' data is memory that all replicas of a machine may share.

    Gradients are given by one thread at a time; others may wait.
    """

    def __init__(
        self, parameters: Sequence[torch.Tensor], settings: Settings, meeting: Meeting, patience: float, network: bool
    ) -> None:
        self.settings = settings
        self.is_paused = False  # gradients are kept until step
        self.is_behind = False  # some weights have not been waited for
        self.is_away = True
        self.is_return = False
        self.steps_done = 0  # since the job began
        self.failure: HubError | None = None
        self.process = os.getpid()
        self.key_of = {id(parameter): key for key, parameter in enumerate(parameters)}
        self._parameters = list(parameters)
        self._meeting = meeting
        self._patience = patience
        self._network = network
        self._server: Server | None = meeting.server
        self._client: Client | None = None
        self._state: State = {}  # to begin with, while away
        self._places: list[_Place] = []
        self._behind = [False] * len(parameters)
        self._behind_count = 0
        self._waiting = threading.RLock()
        self._generation = 0
        self._is_closed = False
        self._values = 0

    @property
    def job(self) -> str:
        suffix = f".{self._generation}" if self._generation > 1 else ""
        return self._meeting.job + suffix

    @property
    def rank(self) -> int:
        return self._meeting.rank

    # --- the job's begin and end

    def start(self) -> None:
        """Joins the job and waits for the others; rank 0's weights and state become everybody's."""
        if self._is_closed:
            raise HubInputError("the optimizer has been closed\nWhat to do: wrap model and optimizer again")
        self._generation += 1
        client = self._join(self.job, self.settings)
        for key, parameter in enumerate(self._parameters):
            if self.rank == 0:
                flat = _flat(parameter.detach())
                client.set_initial(key, flat)
                self._set_initial_state(client, key, self._state.get(parameter, {}))
        self.steps_done = client.start()
        self.is_return = client.is_return
        self._places = [self._place(client, key, parameter) for key, parameter in enumerate(self._parameters)]
        for place in self._places:
            place.parameter.data = place.weights
            place.parameter.grad = None
        self._client = client
        self._state = {}
        self.is_away = False

    def _join(self, job: str, settings: Settings) -> Client:
        deadline = time.monotonic() + RETURN_SECONDS
        while True:
            try:
                return Client(
                    self._meeting.hubs,
                    job,
                    self._meeting.nonce,
                    self.rank,
                    settings,
                    token=self._meeting.token,
                    patience=self._patience,
                    network=self._network,
                )
            except HubInputError as error:
                is_early = settings.on_loss == "wait" and f"already has rank {self.rank} " in str(error)
                if not is_early or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _set_initial_state(self, client: Client, key: int, state: dict[str, object]) -> None:
        group = self.settings.groups[self.settings.keys[key].group]
        tensors = [state.get(name) for name in group.state_names]
        if not tensors or any(each is None for each in tensors):
            return
        like = self._parameters[key]
        for name, tensor in zip(group.state_names, tensors):
            if tensor.shape != like.shape:
                raise HubInputError(
                    f"{name} of {self.settings.keys[key].name} has shape {tuple(tensor.shape)}, and the parameter "
                    f"{tuple(like.shape)}"
                )
        updates = int(state["step"]) if group.algorithm == "adam" else 1
        client.set_initial_state(key, [_flat(tensor.detach().float(), like) for tensor in tensors], updates)

    def _place(self, client: Client, key: int, parameter: torch.Tensor) -> _Place:
        shape, stride = parameter.shape, parameter.stride()
        return _Place(
            parameter,
            client.weights(key).as_strided(shape, stride),
            client.gradient(key).as_strided(shape, stride),
        )

    def go_away(self) -> None:
        """Leaves the job, after which parameters are this process's own, and the state goes along. start() begins a job
        anew, for which every replica must have gone away."""
        if self.is_away:
            return
        if self.settings.on_loss == "wait":
            raise HubInputError(
                'with on_loss="wait" a checkpoint is loaded before tesser.hub.wrap: a worker that returns would begin '
                "with another job than the rest"
            )
        self._state = self.read_state()
        self._detach()
        self._client.leave()
        self._client = None

    def close(self) -> None:
        """As go_away(), and for good. With hubs in the workers it returns when all workers have left."""
        self._is_closed = True
        if self._client is not None:
            if self.failure is None:
                self.wait_all()
            self._detach()
            if self.failure is None:
                self._leave()
            self._client = None
        if self._server is not None:
            self._server.close()
            self._server = None

    def _leave(self) -> None:
        client = self._client
        client.leave()
        while self._server is not None and client.state(self.rank) != "ended":
            time.sleep(LOOK_SECONDS)

    def leave_at_exit(self) -> None:
        """As close(), but the parameters may stay where they are."""
        if self._client is not None and self.failure is None:
            self.wait_all()
            self._leave()

    def _detach(self) -> None:
        self.is_away = True
        self.is_behind = False
        for place in self._places:
            place.parameter.data = place.weights.clone(memory_format=torch.preserve_format)
            place.parameter.grad = None
        self._places = []

    # --- a step

    def take_gradient(self, parameter: torch.Tensor) -> None:
        """When autograd is done with it."""
        if self.is_paused:
            return
        try:
            self._give(self.key_of[id(parameter)])
        except HubError as error:
            self.failure = error
            raise

    def _give(self, key: int) -> None:
        if self.is_away:
            self.start()
        place = self._places[key]
        gradient = place.parameter.grad
        if gradient.requires_grad:  # of backward(create_graph=True)
            gradient = place.parameter.grad = gradient.detach()
        if place.given is not None:
            raise HubInputError(
                f"{self.settings.keys[key].name} got a gradient twice in one step\nWhat to do: call backward() under "
                "optimizer.no_sync() but for the last time before optimizer.step()"
            )
        if self._behind[key]:
            self.wait(key)
        if self.settings.keys[key].row_elements != 0:
            self._client.push_rows(key, *_rows(gradient, self.settings.gradient_dtype))
        else:
            if gradient is not place.gradient:
                if gradient.layout is not torch.strided:
                    raise HubInputError(
                        f"{self.settings.keys[key].name} has a sparse gradient, which only the weight of a single "
                        "embedding may have\nWhat to do: sparse=False in its module"
                    )
                place.gradient.copy_(gradient)
                if place.gradient.dtype == torch.float32:
                    gradient = place.parameter.grad = place.gradient
            self._client.push(key)
        place.given = gradient
        place.version = gradient._version

    def step(self, numbers: Sequence[Numbers]) -> None:
        """Gives what has not been given and commits; the weights are on their way then."""
        try:
            if self.is_away:
                self.start()
            for key, place in enumerate(self._places):
                gradient = place.parameter.grad
                if place.given is not None:
                    self._check_given(key, place, gradient)
                elif gradient is not None:
                    self._give(key)
                else:
                    if self._behind[key]:
                        self.wait(key)
                    self._client.push_none(key)
                place.given = None
            self._client.commit(numbers)
        except HubError as error:
            self.failure = error
            raise
        self.steps_done += 1
        with self._waiting:
            self._behind = [True] * len(self._places)
            self._behind_count = len(self._places)
            self.is_behind = True

    def _check_given(self, key: int, place: _Place, gradient: torch.Tensor | None) -> None:
        if gradient is not place.given or gradient._version != place.version:
            raise HubInputError(
                f"the gradient of {self.settings.keys[key].name} was changed after it had gone to the hub\nWhat to do: "
                "clip by clip_norm= of tesser.hub.wrap instead of torch.nn.utils.clip_grad_norm_; change gradients in "
                "hooks of the parameters; or call backward() under optimizer.no_sync(), which keeps them until step()"
            )
        if place.parameter.data_ptr() != place.weights.data_ptr():
            raise HubInputError(
                f"{self.settings.keys[key].name} is no longer in the hub's memory\nWhat to do: move or convert the "
                "model before tesser.hub.wrap"
            )

    def wait_for(self, parameter: object) -> None:
        key = self.key_of.get(id(parameter))
        if key is not None and self._behind[key]:
            self.wait(key)

    def wait(self, key: int) -> None:
        """Until the key's weights are there."""
        with self._waiting:
            if not self._behind[key] or self._client is None:
                return
            try:
                self._client.wait(key)
            except HubError as error:
                self.failure = error
                raise
            self._behind[key] = False
            self._behind_count -= 1
            self.is_behind = self._behind_count != 0

    def wait_all(self) -> None:
        if self.is_behind:
            for key in range(len(self._places)):
                self.wait(key)

    # --- what else a job has

    def paths(self) -> list[str]:
        return [] if self._client is None else self._client.paths()

    def read_state(self) -> State:
        """The optimizer's, by parameter, as torch's optimizers have it."""
        if self.is_away:
            return dict(self._state)
        self.wait_all()
        states: State = {}
        for key, place in enumerate(self._places):
            group = self.settings.groups[self.settings.keys[key].group]
            if not group.state_names:
                continue
            tensors, updates = self._client.read_state(key)
            if updates == 0:
                continue
            like = place.parameter
            state: dict[str, object] = {"step": torch.tensor(float(updates))} if group.algorithm == "adam" else {}
            for name, flat in zip(group.state_names, tensors):
                state[name] = flat.as_strided(like.shape, like.stride())
            states[place.parameter] = state
        return states

    def set_state(self, state: State) -> None:
        """To begin with. Only while away."""
        self._state = state

    def give_to_all(self, tensors: Iterable[torch.Tensor]) -> None:
        """Rank 0's values become everybody's; of any dtype. Every replica calls it."""
        tensors = [each for each in tensors if each.numel() != 0]
        if not tensors or self._meeting.replicas == 1:
            return
        packed = torch.cat([each.detach().cpu().contiguous().view(-1).view(torch.uint8) for each in tensors])
        words = (packed.numel() + 3) // 4
        settings = replace(
            self.settings,
            groups=self.settings.groups[:1],
            keys=(Key("values", words),),
            clip_norm=0.0,
            on_loss="stop",
            chunk_bytes=VALUE_CHUNK_BYTES,
        )
        self._values += 1
        with self._join(f"{self._meeting.job}.values.{self._values}", settings) as client:
            if self.rank == 0:
                padded = torch.zeros(words * 4, dtype=torch.uint8)
                padded[: packed.numel()] = packed
                client.set_initial(0, padded.view(torch.float32))
            client.start()
            values = client.weights(0).view(torch.uint8)[: packed.numel()]
            with torch.no_grad():
                for tensor, bytes_ in zip(tensors, values.split([each.numel() * each.itemsize for each in tensors])):
                    tensor.copy_(bytes_.clone().view(tensor.dtype).view(tensor.shape))


def _rows(gradient: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers of the rows that an embedding's gradient has, and what it is in them."""
    if gradient.layout is torch.strided:
        return torch.arange(len(gradient)), gradient.to(dtype)
    gradient = gradient.coalesce()
    return gradient.indices()[0], gradient.values().to(dtype)


def _flat(tensor: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """The elements in the order of the parameter's memory."""
    like = tensor if like is None else like
    if tensor.stride() != like.stride():
        tensor = torch.empty_strided(like.shape, like.stride()).copy_(tensor)
    return tensor.as_strided((tensor.numel(),), (1,))
