"""How the processes of a job find one another: rank and number from torchrun's environment or arguments; the job's
name, its nonce and the hubs from arguments, the environment, or the store that rank 0 or torchrun serves at
MASTER_ADDR:MASTER_PORT. No process group is needed."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed

from tesser.hub.client import Server
from tesser.hub.error import HubError, HubInputError

NONCE_VARIABLE = "TESSER_HUB_NONCE"
TOKEN_VARIABLE = "TESSER_HUB_TOKEN"
COLOCATED = "colocated"

# Every process of a job calls in the same order.
_calls = itertools.count()


@dataclass(frozen=True)
class Meeting:
    """What every process of a job has agreed on; `server` is this process's own hub. `store` is kept since rank 0
    serves it to the others."""

    rank: int
    replicas: int
    hubs: tuple[str, ...]
    job: str
    nonce: str
    token: str
    one_machine: bool
    server: Server | None = None
    store: torch.distributed.Store | None = None


def _number(value: int | None, variable: str, argument: str) -> int:
    if value is not None:
        return value
    text = os.environ.get(variable, "")
    if not text.isdecimal():
        raise HubInputError(
            f"{variable} is {text!r}\nWhat to do: start the script by torchrun, set RANK and WORLD_SIZE, or give "
            f"{argument}= to tesser.hub.wrap"
        )
    return int(text)


def _store(rank: int, replicas: int, patience: float, why: str) -> torch.distributed.Store:
    if not os.environ.get("MASTER_ADDR") or not os.environ.get("MASTER_PORT"):
        raise HubInputError(
            f"MASTER_ADDR and MASTER_PORT are not set, and {why}\nWhat to do: start the script by torchrun, or set "
            f"both to where rank 0 can be reached{'' if why.startswith('colocated') else ', or give what is missing'}"
        )
    where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        handler = torch.distributed.rendezvous(
            "env://", rank=rank, world_size=replicas, timeout=timedelta(seconds=patience)
        )
        store, _, _ = next(handler)
    except (RuntimeError, torch.distributed.DistError) as error:
        raise HubError(f"rank {rank} cannot reach rank 0's store at {where}: {_line(error)}") from None
    return torch.distributed.PrefixStore(f"tesser.hub/{next(_calls)}", store)


def _line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _get(store: torch.distributed.Store, key: str, patience: float, whose: int) -> str:
    try:
        store.wait([key], timedelta(seconds=patience))
        return store.get(key).decode()
    except (RuntimeError, torch.distributed.DistError) as error:
        raise HubError(f"nothing has come of rank {whose} within {patience:g} s: {_line(error)}") from None


def _own_address() -> str:
    """Of this machine, as the others reach it: the one that packets to MASTER_ADDR leave from."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        return probe.getsockname()[0]


def meet(
    hub: str | Sequence[str],
    *,
    job: str | None,
    nonce: str | None,
    token: str | None,
    rank: int | None,
    replicas: int | None,
    one_machine: bool | None,
    on_loss: str,
    patience: float,
    network: bool,
) -> Meeting:
    """Blocks until the others are there, where anything is to be agreed on."""
    rank = _number(rank, "RANK", "rank")
    replicas = _number(replicas, "WORLD_SIZE", "replicas")
    if not 0 <= rank < replicas:
        raise HubInputError(f"rank {rank} of {replicas} replicas")
    colocated = hub == COLOCATED
    nonce = nonce or os.environ.get(NONCE_VARIABLE)
    token = token if token is not None else os.environ.get(TOKEN_VARIABLE, "")
    if one_machine is None:
        one_machine = os.environ.get("LOCAL_WORLD_SIZE", "0") == str(replicas)
    if on_loss == "wait" and (not job or not nonce):
        raise HubInputError(
            f"a worker that returns must know the job and its nonce\nWhat to do: give job= and set {NONCE_VARIABLE} "
            "to the same secret for every worker (openssl rand -hex 16)"
        )
    if colocated and on_loss != "stop":
        raise HubInputError(
            f"a colocated hub dies with its worker, so on_loss={on_loss!r} needs a hub of its own\nWhat to do: tesser "
            'hub serve, and hub="http://HOST:PORT"'
        )
    if not colocated and job and nonce:
        urls = (hub,) if isinstance(hub, str) else tuple(hub)
        return Meeting(rank, replicas, urls, job, nonce, token, one_machine)

    missing = "job= and nonce=" if not job and not nonce else "job=" if not job else f"nonce= or {NONCE_VARIABLE}"
    why = "colocated hubs find one another there" if colocated else f"{missing} would be agreed on there"
    store = _store(rank, replicas, patience, why)
    if rank == 0:
        run = os.environ.get("TORCHELASTIC_RUN_ID", "none")
        stem = "job" if run == "none" else run
        agreed = {
            "job": job or f"{stem}-{secrets.token_hex(4)}",
            "nonce": nonce or secrets.token_hex(16),
            "token": secrets.token_hex(16) if colocated else token,
        }
        store.set("job", json.dumps(agreed))
    agreed = json.loads(_get(store, "job", patience, 0))
    if not colocated:
        urls = (hub,) if isinstance(hub, str) else tuple(hub)
        return Meeting(rank, replicas, urls, agreed["job"], agreed["nonce"], token, one_machine, store=store)
    # One core: the others of this machine are the processes' own.
    listen = "127.0.0.1:0" if one_machine else f"{_own_address()}:0"
    # Who knows the token belongs to the job, so the other hubs may be wherever it says.
    hubs = "" if one_machine else "any"
    server = Server(listen, token=agreed["token"], processors=_one_processor(), hubs=hubs, network=network)
    store.set(f"hub {rank}", server.url)
    urls = tuple(_get(store, f"hub {each}", patience, each) for each in range(replicas))
    return Meeting(rank, replicas, urls, agreed["job"], agreed["nonce"], agreed["token"], one_machine, server, store)


def _one_processor() -> str:
    return str(min(os.sched_getaffinity(0)))
