"""PyTorch's training step in several processes on one machine, over Gloo; prints one JSON line.

    python -m bench.step_distributed MODEL SYSTEM --workers N --warm-up N --steps N --threads N

Systems: ddp (DistributedDataParallel) and fsdp2 (fully_shard of each block, then of the whole). Each process has an
equal share of the global batch. A step lasts as long as in the process where it lasts longest, and the peak is that of
the process with the highest; what processes take to start is not counted.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch import distributed, multiprocessing, nn

from bench import step_models
from bench.machine import memory_bytes
from bench.step_pytorch import timed, training_step
from tesser.step import Step

SYSTEMS = ("ddp", "fsdp2")


def blocks(model_name: str, model: nn.Module) -> list[nn.Module]:
    """What a user would shard as one unit: GPT's blocks, ResNet's residual blocks, otherwise the layers."""
    match model_name:
        case "gpt":
            return list(model.blocks)
        case "resnet18":
            return [block for stage in model.stages for block in stage]
        case _:
            return [child for child in model.children() if any(True for _ in child.parameters())]


def distribute(model_name: str, system: str, step: Step, workers: int) -> Step:
    """The step with its model wrapped. FSDP2 replaces the parameters, so the optimizer is made anew around them."""
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


def run_worker(rank: int, options: argparse.Namespace, meeting: str, answer: Connection) -> None:
    torch.set_num_threads(options.threads)
    before = memory_bytes("VmRSS")
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=options.workers)
    torch.manual_seed(0)
    step = step_models.load(options.model)
    batch = step_models.batch(options.model, step)
    share = {name: value.tensor_split(options.workers)[rank] for name, value in batch.items()}
    run = training_step(distribute(options.model, options.system, step, options.workers), share)
    milliseconds = timed(run, options.warm_up, options.steps)
    answer.send({"step_ms": milliseconds, "peak_bytes": memory_bytes("VmHWM") - before})
    distributed.barrier()
    distributed.destroy_process_group()


def measure(options: argparse.Namespace) -> dict:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        ends = [context.Pipe(duplex=False) for _ in range(options.workers)]
        processes = [
            context.Process(target=run_worker, args=(rank, options, str(Path(folder) / "meeting"), sending))
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
