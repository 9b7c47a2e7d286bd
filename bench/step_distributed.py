"""PyTorch's training step in several processes on one machine, over Gloo or tesser.hub; prints one JSON line.

    python -m bench.step_distributed MODEL SYSTEM --workers N --warm-up N --steps N --threads N

Systems: ddp (DistributedDataParallel), fsdp2 (fully_shard of each block, then of the whole) and torch-hub
(tesser.hub.wrap with a hub in each process). Each process has an equal share of the global batch. A step lasts as long
as in the process where it lasts longest, and the peak is that of the process with the highest; what processes take to
start is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch import distributed, multiprocessing, nn

from bench import step_models
from bench.machine import memory_bytes
from bench.step_pytorch import timed, training_step
from tesser.step import Step

SYSTEMS = ("ddp", "fsdp2", "torch-hub")


def blocks(model_name: str, model: nn.Module) -> list[nn.Module]:
    """What a user would shard as one unit: GPT's blocks, ResNet's residual blocks, otherwise the layers."""
    match model_name:
        case "gpt":
            return list(model.blocks)
        case "resnet18":
            return [block for stage in model.stages for block in stage]
        case _:
            return [child for child in model.children() if any(True for _ in child.parameters())]


def distribute(model_name: str, system: str, step: Step, rank: int, workers: int) -> Step:
    """The step with its model wrapped. FSDP2 replaces the parameters, so the optimizer is made anew around them."""
    if system == "torch-hub":
        import tesser.hub

        model, optimizer = tesser.hub.wrap(
            step.model, step.optimizer, hub="colocated", rank=rank, replicas=workers, one_machine=True
        )
        return Step(model, step.loss, step.batch, optimizer)
    if system == "ddp":
        return Step(nn.parallel.DistributedDataParallel(step.model), step.loss, step.batch, step.optimizer)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    places = {parameter: name for name, parameter in step.model.named_parameters()}
    groups = [
        {**group, "params": [places[parameter] for parameter in group["params"]]}
        for group in step.optimizer.param_groups
    ]
    mesh = init_device_mesh("cpu", (workers,))
    for block in blocks(model_name, step.model):
        fully_shard(block, mesh=mesh)
    fully_shard(step.model, mesh=mesh)
    sharded = dict(step.model.named_parameters())
    groups = [{**group, "params": [sharded[name] for name in group["params"]]} for group in groups]
    return Step(step.model, step.loss, step.batch, type(step.optimizer)(groups))


def run_worker(rank: int, options: argparse.Namespace, meeting: str, port: int, answer: Connection) -> None:
    torch.set_num_threads(options.threads)
    before = memory_bytes("VmRSS")
    if options.system == "torch-hub":
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    else:
        distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=options.workers)
    torch.manual_seed(0)
    step = step_models.load(options.model)
    batch = step_models.batch(options.model, step)
    share = {name: value.tensor_split(options.workers)[rank] for name, value in batch.items()}
    step = distribute(options.model, options.system, step, rank, options.workers)
    milliseconds = timed(training_step(step, share), options.warm_up, options.steps)
    answer.send({"step_ms": milliseconds, "peak_bytes": memory_bytes("VmHWM") - before})
    if options.system == "torch-hub":
        step.optimizer.close()
        return
    distributed.barrier()
    distributed.destroy_process_group()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def measure(options: argparse.Namespace) -> dict:
    context = multiprocessing.get_context("spawn")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        ends = [context.Pipe(duplex=False) for _ in range(options.workers)]
        processes = [
            context.Process(target=run_worker, args=(rank, options, str(Path(folder) / "meeting"), port, sending))
            for rank, (_, sending) in enumerate(ends)
        ]
        for process, (_, sending) in zip(processes, ends):
            process.start()
            sending.close()  # so that the end of a process that fails is seen
        results = [receiving.recv() for receiving, _ in ends]
        for process in processes:
            process.join()
    return {
        "step_ms": [max(times) for times in zip(*(result["step_ms"] for result in results))],
        "peak_bytes": max(result["peak_bytes"] for result in results),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=step_models.NAMES)
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, required=True, help="of each process")
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
