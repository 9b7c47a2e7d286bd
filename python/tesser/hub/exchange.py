"""The parameters of one model in the memory where the hub puts weights, their gradients in memory that the hub reads,
and who has to wait for what."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from tesser.hub.buffers import Buffers
from tesser.hub.client import Client, Server
from tesser.hub.error import HubError, HubInputError
from tesser.hub.guarded import grad_of, guard_gradient, guard_parameters, set_grad, unguard_parameters
from tesser.hub.rendezvous import Meeting
from tesser.hub.settings import Key, Numbers, Settings
from tesser.hub.tensors import flat, rows_of

# A worker that comes back may be faster than the news of its loss.
RETURN_SECONDS = 15.0
# Between two looks whether the others have left.
LOOK_SECONDS = 0.02
# After another replica has failed, its hub's reason is still to be had here.
REASON_SECONDS = 1.0
# Of a job that gives tensors to all.
VALUE_CHUNK_BYTES = 1 << 20

State = dict[torch.Tensor, dict[str, object]]


@dataclass
class _Place:
    """Of one key."""

    parameter: torch.Tensor
    weights: torch.Tensor  # shaped as the parameter, in the hub's or the client's memory
    gradient: torch.Tensor  # likewise, of the gradients' dtype
    address: int  # of weights
    weights_version: int  # of the parameter, when nobody has changed it by hand
    given: torch.Tensor | None = None  # the parameter's .grad when it was pushed, in this step or last
    version: int = 0  # of `given` then
    is_given: bool = False  # in this step


class Exchange:
    """Between start() and go_away() the parameters' data is memory that all replicas of a machine may share.

    Gradients are given by one thread at a time; others may wait. `buffers` are the last key, where they go along.
    A failure is final.
    """

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        buffers: Buffers | None,
        settings: Settings,
        meeting: Meeting,
        patience: float,
        network: bool,
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
        self.buffers = buffers
        self.has_new_buffers = False  # of the last step, which the next forward takes
        self._behind = [False] * len(settings.keys)
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
        self._check_failure()
        self._generation += 1
        client = self._join(self.job, self.settings)
        for key, parameter in enumerate(self._parameters):
            if self.rank == 0:
                client.set_initial(key, flat(parameter.detach()))
                self._set_initial_state(client, key, self._state.get(parameter, {}))
        if self.buffers is not None and self.rank == 0:
            client.set_initial(len(self._parameters), self.buffers.pack())
        self.steps_done = client.start()
        self.is_return = client.is_return
        self._places = [self._place(client, key, parameter) for key, parameter in enumerate(self._parameters)]
        for place in self._places:
            place.parameter.data = place.weights
        guard_parameters(self._parameters, self)
        self._client = client
        self._state = {}
        self.is_away = False
        if self.buffers is not None:
            self._buffer_gradient = client.gradient(len(self._parameters))
            self._buffer_weights = client.weights(len(self._parameters))
            if self.rank != 0 or self.is_return:
                self.buffers.forget()
                self.has_new_buffers = True  # not taken here: this may be in the middle of a backward pass

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
        client.set_initial_state(key, [flat(tensor.detach().float(), like) for tensor in tensors], updates)

    def _place(self, client: Client, key: int, parameter: torch.Tensor) -> _Place:
        shape, stride = parameter.shape, parameter.stride()
        weights = client.weights(key).as_strided(shape, stride)
        gradient = guard_gradient(client.gradient(key).as_strided(shape, stride))
        return _Place(parameter, weights, gradient, weights.data_ptr(), parameter._version)

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
        with self._final_failures():
            self._check_all_weights()
            self._state = self.read_state()
        self._detach()
        self._client.leave()
        self._client = None

    def close(self) -> None:
        """As go_away(), and for good. With hubs in the workers it returns when all workers have left."""
        self._is_closed = True
        try:
            if self._client is not None and self.failure is None:
                self._end()
        finally:
            if self._client is not None:
                self._detach()
                if self.failure is None:
                    self._leave()
                else:
                    self._client.abandon()
                self._client = None
            if self._server is not None:
                self._server.close()
                self._server = None

    def _leave(self) -> None:
        client = self._client
        client.leave()
        try:
            while self._server is not None and client.state(self.rank) != "ended":
                time.sleep(LOOK_SECONDS)
        except HubError:
            # The job of those that are left has failed, which is theirs to say.
            time.sleep(REASON_SECONDS)

    def leave_at_exit(self) -> None:
        """As close(), but the parameters may stay where they are."""
        if self._client is not None and self.failure is None:
            self._end()
            self._leave()

    def _end(self) -> None:
        with self._final_failures():
            self.wait_all()
            self._check_all_weights()

    def _detach(self) -> None:
        self.is_away = True
        self.is_behind = False
        self.has_new_buffers = False
        unguard_parameters(self._parameters)
        for place in self._places:
            place.parameter.data = place.weights.clone(memory_format=torch.preserve_format)
            place.parameter.grad = None
        self._places = []

    # --- a step

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Gradients of a backward pass within are kept and added up."""
        before, self.is_paused = self.is_paused, True
        try:
            yield
        finally:
            self.is_paused = before

    def take_gradient(self, parameter: torch.Tensor) -> None:
        """When autograd is done with it."""
        if self.is_paused:
            return
        self._check_failure()
        try:
            if self.is_away:
                self.start()
            key = self.key_of[id(parameter)]
            self._check_weights(key)
            if self._places[key].is_given:
                self._withdraw(accumulated=key)
            self._give(key)
        except HubError as error:
            self.failure = error
            raise

    def _give(self, key: int) -> None:
        place = self._places[key]
        gradient = grad_of(place.parameter)
        if gradient.requires_grad:  # of backward(create_graph=True)
            gradient = gradient.detach()
            set_grad(place.parameter, gradient)
        if self._behind[key]:
            self.wait(key)
        if self.settings.keys[key].row_elements != 0:
            self._client.push_rows(key, *rows_of(gradient, self.settings.gradient_dtype))
        else:
            if gradient is not place.gradient:
                if gradient.layout is not torch.strided:
                    raise HubInputError(
                        f"{self.settings.keys[key].name} has a sparse gradient, which only the weight of a single "
                        "embedding may have\nWhat to do: sparse=False in its module"
                    )
                place.gradient.copy_(gradient)
                if place.gradient.dtype == torch.float32:
                    gradient = place.gradient
                    set_grad(place.parameter, gradient)
            self._client.push(key)
        place.given = guard_gradient(gradient)
        place.version = gradient._version
        place.is_given = True

    def step(self, numbers: Sequence[Numbers]) -> None:
        """Gives what has not been given and commits; the weights are on their way then."""
        with self._final_failures():
            if self.is_away:
                self.start()
            dropped = []
            for key, place in enumerate(self._places):
                self._check_weights(key)
                if place.is_given and grad_of(place.parameter) is None:
                    dropped.append(key)
                elif place.is_given:
                    self._check_given(key, place)
            self._withdraw_keys(dropped)
            for key, place in enumerate(self._places):
                if not place.is_given:
                    self._give_or_none(key, place)
                place.is_given = False
                place.weights_version += 1
            if self.buffers is not None:
                self._give_buffers(len(self._places))
            # For a graph of before the step, whose backward pass would read the weights of after it.
            torch.autograd.graph.increment_version(self._parameters)
            self._client.commit(numbers)
        self.steps_done += 1
        with self._waiting:
            self._behind = [True] * len(self._behind)
            self._behind_count = len(self._behind)
            self.is_behind = True
            self.has_new_buffers = self.buffers is not None and self.rank != 0

    def _give_or_none(self, key: int, place: _Place) -> None:
        if grad_of(place.parameter) is not None:
            return self._give(key)
        if self._behind[key]:
            self.wait(key)
        self._client.push_none(key)
        place.given = None

    @contextlib.contextmanager
    def _final_failures(self) -> Iterator[None]:
        self._check_failure()
        try:
            yield
        except HubError as error:
            self.failure = error
            raise

    def _check_failure(self) -> None:
        if self.failure is not None:
            raise type(self.failure)(f"the job has failed: {self.failure}")

    def _check_given(self, key: int, place: _Place) -> None:
        if grad_of(place.parameter) is not place.given or place.given._version != place.version:
            raise HubInputError(
                f"the gradient of {self.settings.keys[key].name} was changed after it had gone to the hub\nWhat to do: "
                "clip by clip_norm= of tesser.hub.wrap instead of torch.nn.utils.clip_grad_norm_; change gradients in "
                "hooks of the parameters; or call backward() under no_sync(), which keeps them until step()"
            )

    def prepare(self, parameters: Iterable[torch.Tensor | None]) -> None:
        """For a module's forward: their weights are there, and nobody has changed them by hand."""
        if self.is_away:
            return
        for parameter in parameters:
            key = self.key_of.get(id(parameter))
            if key is not None:
                if self._behind[key]:
                    self.wait(key)
                try:
                    self._check_weights(key)
                except HubError as error:
                    self.failure = error
                    raise

    def _check_all_weights(self) -> None:
        for key in range(len(self._places)):
            self._check_weights(key)

    def _check_weights(self, key: int) -> None:
        place = self._places[key]
        if place.parameter.data_ptr() != place.address:
            raise HubInputError(
                f"{self.settings.keys[key].name} is no longer in the hub's memory\nWhat to do: move, convert or "
                "replace parameters before tesser.hub.wrap, or after close() of its optimizer"
            )
        if place.parameter._version != place.weights_version:
            raise HubInputError(
                f"{self.settings.keys[key].name} was changed by hand, or by another optimizer; its weights are the "
                "hub's, and may be those of all replicas\nWhat to do: load_state_dict() with other weights on every "
                "replica, or change a copy (copy.deepcopy(model))"
            )

    # --- what was given and is not to count

    def drop_gradients(self) -> None:
        """Those of this step, which another backward pass will make anew."""
        if not self.is_away and any(place.is_given for place in self._places):
            with self._final_failures():
                self._withdraw_keys([key for key, place in enumerate(self._places) if place.is_given])

    def _withdraw(self, accumulated: int) -> None:
        """There is another backward pass before step(): it adds to gradients, or those of before were dropped."""
        given = [key for key, place in enumerate(self._places) if place.is_given]
        for key in given:
            place = self._places[key]
            if key == accumulated and grad_of(place.parameter) is place.given:
                place.version += 1  # by autograd
            elif grad_of(place.parameter) is not place.given and place.given._version == place.version:
                continue
            self._check_given(key, place)
        self._withdraw_keys(given)

    def _withdraw_keys(self, keys: list[int]) -> None:
        if keys:
            with self._waiting:
                self._client.withdraw(keys)
            for key in keys:
                self._places[key].is_given = False

    # --- buffers

    def _give_buffers(self, key: int) -> None:
        if self._behind[key]:
            self.wait(key)
        news = self.buffers.pack_news() if self.rank == 0 else None
        if news is None:
            self._client.push_none(key)
        else:
            self._buffer_gradient.copy_(news)
            self._client.push(key)

    def take_buffers(self) -> None:
        """Rank 0's of the last step, if there are any. Before a forward."""
        if self.has_new_buffers:
            self.has_new_buffers = False
            self.wait(len(self._places))
            self.buffers.take(self._buffer_weights)

    # --- weights that are on their way

    def wait_for(self, parameter: object) -> None:
        key = self.key_of.get(id(parameter))
        if key is not None and self._behind[key]:
            self.wait(key)

    def wait(self, key: int) -> None:
        """Until the key's weights are there."""
        with self._waiting:
            if not self._behind[key] or self._client is None:
                return
            self._check_failure()
            try:
                self._client.wait(key)
                self._check_read(key)
            except HubError as error:
                self.failure = error
                raise
            self._behind[key] = False
            self._behind_count -= 1
            self.is_behind = self._behind_count != 0

    def _check_read(self, key: int) -> None:
        if key < len(self._places):
            place = self._places[key]
            if place.given is place.gradient and place.gradient._version != place.version:
                raise HubInputError(
                    f"the gradient of {self.settings.keys[key].name} was changed while the hub read it\nWhat to do: "
                    "take gradients from their parameters after step(), or call synchronize() of the optimizer before"
                )

    def wait_all(self) -> None:
        if self.is_behind:
            for key in range(len(self._behind)):
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
            for name, values in zip(group.state_names, tensors):
                state[name] = values.as_strided(like.shape, like.stride())
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
