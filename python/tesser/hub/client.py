"""A worker's side of a job, and a hub within this process: what src/hub/client.h and hub.h have, for Python."""

from __future__ import annotations

import ctypes
import json
import weakref
from collections.abc import Sequence

import torch

from tesser.hub.library import byref, c_double, c_int, c_int64, c_void_p, check, failure, load
from tesser.hub.settings import Numbers, Settings

# A wait gives Python's signal handlers their turn this often.
TURN_MILLISECONDS = 200


class _Memory:
    """The C++ client. Tensors in its memory keep it, so that none outlives what it shows."""

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer
        # Not at the end of the interpreter: whether that is a loss is for leave() to say.
        weakref.finalize(self, load().tesser_hub_close, pointer).atexit = False

    def tensor(self, address: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
        bytes_ = (ctypes.c_char * (elements * dtype.itemsize)).from_address(address)
        bytes_.memory = self
        return torch.frombuffer(bytes_, dtype=dtype)


class Client:
    """One worker of a job. Joins at once; start() waits for the others.

    A step is push() or push_none() of every key, then commit(), then wait() for a key before its weights are read. A
    gradient must not change from its push until its weights are there. Pushes and commits belong to one thread at a
    time, waits to one, which may be another. Failures are HubError, and final; wrong input is HubInputError.

    As a context manager it leaves at the end; after an exception the others take it for lost.
    """

    def __init__(
        self,
        hubs: Sequence[str],
        job: str,
        nonce: str,
        rank: int,
        settings: Settings,
        *,
        token: str = "",
        patience: float = 60.0,
        network: bool = False,
    ) -> None:
        options = {
            "hubs": list(hubs),
            "token": token,
            "job": job,
            "nonce": nonce,
            "rank": rank,
            "patience_seconds": patience,
            "network": network,
            "settings": settings.to_json(),
        }
        self.settings = settings
        self.rank = rank
        self.is_return = False  # whether this worker was lost before; known after start()
        self._library = load()
        pointer = c_void_p()
        check(self._library.tesser_hub_join(json.dumps(options).encode(), byref(pointer)))
        self._memory = _Memory(pointer.value)
        self._pointer = pointer.value
        self._numbers = (c_double * (7 * len(settings.groups)))()
        self._push = self._library.tesser_hub_push
        self._wait_for = self._library.tesser_hub_wait_for
        self._is_current = c_int()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type | None, *rest: object) -> None:
        if kind is None:
            self.leave()
        else:
            self.abandon()

    def gradient(self, key: int) -> torch.Tensor:
        """Where the key's gradient goes: flat, of the settings' gradient_dtype, zeros at first."""
        address = self._library.tesser_hub_gradient(self._pointer, key)
        return self._memory.tensor(address, self.settings.keys[key].elements, self.settings.gradient_dtype)

    def weights(self, key: int) -> torch.Tensor:
        """After start(): flat, float32, the same memory all the time."""
        address = self._library.tesser_hub_weights(self._pointer, key)
        return self._memory.tensor(address, self.settings.keys[key].elements, torch.float32)

    def set_initial(self, key: int, values: torch.Tensor) -> None:
        """Of rank 0 before start(): the weights that the job begins with; flat, float32."""
        self._check_size(key, values)
        self._library.tesser_hub_set_initial(self._pointer, key, values.data_ptr(), values.numel())

    def set_initial_state(self, key: int, tensors: Sequence[torch.Tensor], updates: int) -> None:
        """Likewise: the optimizer's state beside it, in the order of ParameterGroup.state_names, and how many updates
        it has seen."""
        for number, values in enumerate(tensors):
            self._check_size(key, values)
            check(
                self._library.tesser_hub_set_initial_state(
                    self._pointer, key, number, values.data_ptr(), values.numel()
                )
            )
        self._library.tesser_hub_set_initial_updates(self._pointer, key, updates)

    def start(self) -> int:
        """Waits until every worker has started. Gives back how many steps this one has committed: 0, unless it was lost
        and comes back."""
        step, is_return = c_int64(), c_int()
        check(self._library.tesser_hub_start(self._pointer, byref(step), byref(is_return)))
        self.is_return = is_return.value != 0
        return step.value

    def push(self, key: int) -> None:
        code = self._push(self._pointer, key)
        if code != 0:
            raise failure(code)

    def push_rows(self, key: int, rows: torch.Tensor, values: torch.Tensor) -> None:
        """Of a key with row_elements: the gradient of these rows, ascending (int64); all others are zero. `values`: one
        row each, contiguous, of the settings' gradient_dtype; both may change afterwards."""
        if rows.dtype != torch.int64 or values.dtype != self.settings.gradient_dtype:
            raise ValueError(
                f"expected int64 rows and {self.settings.gradient_dtype}, not {rows.dtype}, {values.dtype}"
            )
        rows, values = rows.contiguous(), values.contiguous()
        bytes_ = values.numel() * values.itemsize
        check(
            self._library.tesser_hub_push_rows(
                self._pointer, key, rows.data_ptr(), rows.numel(), values.data_ptr(), bytes_
            )
        )

    def push_none(self, key: int) -> None:
        """There is no gradient in this step. A key without one of any worker keeps weights and state."""
        check(self._library.tesser_hub_push_none(self._pointer, key))

    def withdraw(self, keys: Sequence[int]) -> None:
        """As if these keys had not been pushed in this step, which is not committed yet: each is pushed anew, and its
        gradient may change before. Blocks for a round trip."""
        numbers = (c_int64 * len(keys))(*keys)
        check(self._library.tesser_hub_withdraw(self._pointer, numbers, len(keys)))

    def commit(self, numbers: Sequence[Numbers]) -> None:
        """`numbers`: of each parameter group, the same for every worker."""
        if len(numbers) != len(self.settings.groups):
            raise ValueError(f"numbers of {len(numbers)} parameter groups, where there are {len(self.settings.groups)}")
        values = [value for each in numbers for value in each.values()]
        self._numbers[:] = values
        check(self._library.tesser_hub_commit(self._pointer, self._numbers, len(numbers)))

    def wait(self, key: int) -> None:
        """Until the weights of every step pushed are there."""
        while True:
            code = self._wait_for(self._pointer, key, TURN_MILLISECONDS, self._is_current)
            if code != 0:
                raise failure(code)
            if self._is_current.value:
                return

    def wait_all(self) -> None:
        for key in range(len(self.settings.keys)):
            self.wait(key)

    def read_state(self, key: int) -> tuple[list[torch.Tensor], int]:
        """The optimizer's state beside a key, flat, and how many updates it has seen. After wait(), and before this
        worker commits a further step."""
        updates = c_int64()
        check(self._library.tesser_hub_read_updates(self._pointer, key, byref(updates)))
        group = self.settings.groups[self.settings.keys[key].group]
        tensors = []
        for number in range(len(group.state_names)):
            values = torch.empty(self.settings.keys[key].elements)
            check(self._library.tesser_hub_read_state(self._pointer, key, number, values.data_ptr(), values.numel()))
            tensors.append(values)
        return tensors, updates.value

    def state(self, hub: int = 0) -> str:
        """What hub number `hub` says of the job: "gathering", "running", or "ended" when all workers have left."""
        text = self._library.tesser_hub_state(self._pointer, hub)
        if text is None:
            raise failure(1)
        return text.decode()

    def paths(self) -> list[str]:
        """How each hub is reached, for people."""
        return self._library.tesser_hub_paths(self._pointer).decode().splitlines()

    def leave(self) -> None:
        """This worker is done. Without it the end of the process is a loss."""
        check(self._library.tesser_hub_leave(self._pointer))

    def abandon(self) -> None:
        """The others shall take this worker for lost, as soon as nothing shows its memory any more."""
        self._library.tesser_hub_abandon(self._pointer)

    def _check_size(self, key: int, values: torch.Tensor) -> None:
        which = self.settings.keys[key]
        if values.dtype != torch.float32 or values.numel() != which.elements or not values.is_contiguous():
            raise ValueError(
                f"{which.name}: expected {which.elements} contiguous elements of float32, not {values.numel()} of "
                f"{values.dtype}"
            )


class Server:
    """A hub in this process, with threads of its own. Ends with close(), and with the process."""

    def __init__(
        self,
        listen: str = "127.0.0.1:0",
        *,
        token: str = "",
        processors: str = "",
        pins: bool = False,
        hubs: str = "",
        network: bool = False,
    ) -> None:
        """`processors`: "0-3,8", one core of the hub for each (on it, where it `pins`); empty: all of the machine.
        `hubs`: hosts of a job's other hubs, "10.0.0.2,10.0.0.3" or "any", that this one connects to beside those of
        this machine: with several racks, or clipping over several hubs."""
        options = {
            "listen": listen,
            "token": token,
            "processors": processors,
            "pins": pins,
            "hubs": hubs,
            "network": network,
        }
        pointer = c_void_p()
        check(load().tesser_hub_serve(json.dumps(options).encode(), byref(pointer)))
        self._pointer: int | None = pointer.value
        self.url = load().tesser_hub_url(self._pointer).decode()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._pointer is not None:
            load().tesser_hub_end(self._pointer)
            self._pointer = None
