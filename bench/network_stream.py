"""What bytes over TCP cost the processor that also computes: python -m bench.network_stream LISTEN|CONNECT ADDRESS CPU.

One process on either end of a link, each bound to a processor together with a loop that computes all the time. Both
send to each other as fast as the link takes it, as workers do. Prints the bytes that this end received in a second,
and the share of its processor that the loop lost meanwhile: copies, checksums, interrupts and being woken.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import socket
import sys
import threading
import time
from dataclasses import dataclass

PORT = 7431
PIECE = 128 * 1024  # of a tensor, as transfers hand them over
# The loop is alone and beside the stream in turns, as the machine may do other things too.
PHASES = 20
PHASE_SECONDS = 0.3
SETTLED = 0.08  # of a phase, until what the phase before has sent is through
PATIENCE = 20.0


def compute(counter: multiprocessing.Value) -> None:
    number = 1
    while True:
        for _ in range(2000):
            number = number * 3 % 1000003
        counter.value += 1


@dataclass
class Counted:
    """Of the phases of one kind, alone or beside the stream."""

    rounds: int = 0
    bytes: int = 0
    seconds: float = 0


def joined(role: str, address: str) -> socket.socket:
    if role == "listen":
        with socket.create_server((address, PORT)) as server:
            server.settimeout(PATIENCE)
            return server.accept()[0]
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=1)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def main() -> None:
    role, address, processor = sys.argv[1:]
    os.sched_setaffinity(0, {int(processor)})
    counter = multiprocessing.Value("q", 0, lock=False)
    busy = multiprocessing.Process(target=compute, args=(counter,), daemon=True)
    busy.start()
    connection = joined(role, address)
    connection.settimeout(PATIENCE)
    connection.sendall(b"1")
    connection.recv(1)  # from here on both ends go from phase to phase by their clocks
    begun = time.monotonic()
    streams = threading.Event()
    received = 0

    def send() -> None:
        piece = bytes(PIECE)
        with contextlib.suppress(OSError):  # the other end has measured enough
            while True:
                streams.wait()
                connection.sendall(piece)

    def receive() -> None:
        nonlocal received
        memory = bytearray(PIECE)
        with contextlib.suppress(OSError):
            while (count := connection.recv_into(memory)) > 0:
                received += count

    for work in (send, receive):
        threading.Thread(target=work, daemon=True).start()
    counted = {False: Counted(), True: Counted()}
    for phase in range(PHASES):
        beside = phase % 2 == 1
        (streams.set if beside else streams.clear)()
        time.sleep(max(0.0, begun + phase * PHASE_SECONDS + SETTLED - time.monotonic()))
        rounds, count, start = counter.value, received, time.monotonic()
        time.sleep(max(0.0, begun + (phase + 1) * PHASE_SECONDS - time.monotonic()))
        counted[beside].rounds += counter.value - rounds
        counted[beside].bytes += received - count
        counted[beside].seconds += time.monotonic() - start
    alone, stream = counted[False], counted[True]
    lost = 1 - stream.rounds / stream.seconds * alone.seconds / alone.rounds
    print(json.dumps({"bytes_per_second": stream.bytes / stream.seconds, "lost_share": max(0.0, lost)}), flush=True)
    time.sleep(2 * SETTLED)  # the other end may be a little later
    busy.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
