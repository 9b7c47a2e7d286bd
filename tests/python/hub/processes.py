"""Processes that run replicas, started once and used again; and hubs in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection

import torch

import tesser.hub

SECONDS = 60

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["torch._dynamo", "torch.nn.parallel", "tesser.hub"])


def _work(connection: Connection) -> None:
    torch.set_num_threads(1)
    while True:
        try:
            function, arguments, options = connection.recv()
        except EOFError:
            return
        try:
            connection.send((True, function(*arguments, **options)))
        except Exception:
            connection.send((False, traceback.format_exc()))


class Replicas:
    """As many processes as a run needs, one for each rank."""

    def __init__(self) -> None:
        self._processes: list[tuple[multiprocessing.Process, Connection]] = []

    def run(self, function: Callable, replicas: int, *arguments: object, **options: object) -> list:
        """function(rank, replicas, *arguments, **options) in each; what they give back, by rank."""
        while len(self._processes) < replicas:
            here, there = context.Pipe()
            process = context.Process(target=_work, args=(there,), daemon=True)
            process.start()
            there.close()
            self._processes.append((process, here))
        for rank in range(replicas):
            self._processes[rank][1].send((function, (rank, replicas, *arguments), options))
        results, failures = [], []
        for rank in range(replicas):
            connection = self._processes[rank][1]
            is_good, result = connection.recv() if connection.poll(SECONDS) else (False, "no answer")
            (results if is_good else failures).append(result if is_good else f"rank {rank}: {result}")
        if failures:
            self.close()  # who knows what state they are in
            raise AssertionError("\n".join(failures))
        return results

    def close(self) -> None:
        for process, connection in self._processes:
            connection.close()
            process.kill()
            process.join()
        self._processes = []


def _serve(connection: Connection, options: dict) -> None:
    server = tesser.hub.Server(**options)
    connection.send(server.url)
    connection.poll(None)  # until the other end is closed
    os._exit(0)


class HubProcess:
    """A hub of its own."""

    def __init__(self, **options: object) -> None:
        self._connection, there = context.Pipe()
        self.process = context.Process(target=_serve, args=(there, {"processors": "0", **options}), daemon=True)
        self.process.start()
        there.close()
        assert self._connection.poll(SECONDS), "the hub has not started"
        self.url: str = self._connection.recv()

    def __enter__(self) -> HubProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self.process.kill()
        self.process.join()
