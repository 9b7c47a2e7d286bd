"""Writes golden.txt: updates as torch.optim computes them with foreach=False, for update_test.cc.

    PYTHONPATH=python python tests/optimizer/make_golden.py

Lines are `NAME VALUE...`; floats are written as their bits in hexadecimal, so that nothing is lost. The file holds the
numbers of one processor and one PyTorch: tolerances are in update_test.cc.
"""

from pathlib import Path

import numpy as np
import torch

from tesser import philox

COUNT = 45  # two vectors of 16 and a rest
STEPS = 5
RATES = [0.01, 0.02, 0.02, 0.005, 0.001]  # a schedule

SGD = {
    "plain": {},
    "decay": {"weight_decay": 0.1},
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "dampening": {"momentum": 0.8, "dampening": 0.3, "weight_decay": 0.05},
    "everything": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "maximize": True},
}
ADAM = {
    "adam": (torch.optim.Adam, {}),
    "adam_decay": (torch.optim.Adam, {"weight_decay": 0.1}),
    "adam_low_betas": (torch.optim.Adam, {"betas": (0.3, 0.45)}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1}),
    "amsgrad": (torch.optim.Adam, {"amsgrad": True, "betas": (0.8, 0.9), "eps": 1e-6}),
    "adamw_everything": (torch.optim.AdamW, {"amsgrad": True, "weight_decay": 0.2, "maximize": True}),
}


def bits(tensor: torch.Tensor) -> str:
    array = tensor.detach().numpy()
    return " ".join(f"{value:x}" for value in array.view(np.uint32 if array.dtype == np.float32 else np.uint64))


def numbers(*values: object) -> str:
    return " ".join(float(value).hex() for value in values)


def main() -> None:
    lines = [f"count {COUNT}", f"steps {STEPS}", f"rates {numbers(*RATES)}"]
    for dtype in (torch.float32, torch.float64):
        name = str(dtype).removeprefix("torch.")
        start = torch.from_numpy(philox.normals(COUNT, 0.0, 1.0, 1, 0, 0)).to(dtype)
        gradients = [torch.from_numpy(philox.normals(COUNT, 0.0, 0.3, 1, step, 1)).to(dtype) for step in range(STEPS)]
        lines += [f"{name}/start {bits(start)}"] + [
            f"{name}/gradient/{step} {bits(g)}" for step, g in enumerate(gradients)
        ]
        cases = {**{case: (torch.optim.SGD, options) for case, options in SGD.items()}, **ADAM}
        for case, (optimizer_class, options) in cases.items():
            parameter = torch.nn.Parameter(start.clone())
            optimizer = optimizer_class([parameter], lr=RATES[0], foreach=False, **options)
            for rate, gradient in zip(RATES, gradients, strict=True):
                optimizer.param_groups[0]["lr"] = rate
                parameter.grad = gradient.clone()
                optimizer.step()
            group = optimizer.param_groups[0]
            if optimizer_class is torch.optim.SGD:
                settings = [group[key] for key in ("momentum", "dampening", "weight_decay", "nesterov", "maximize")]
            else:
                settings = [
                    *group["betas"],
                    *(group[key] for key in ("eps", "weight_decay", "decoupled_weight_decay", "maximize", "amsgrad")),
                ]
            lines += [f"settings/{case} {numbers(*settings)}"] if dtype is torch.float32 else []
            lines += [f"{name}/{case}/parameter {bits(parameter)}"]
            state = optimizer.state[parameter]
            lines += [
                f"{name}/{case}/{slot} {bits(state[slot])}"
                for slot in ("momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")
                if state.get(slot) is not None
            ]
    (Path(__file__).parent / "golden.txt").write_text("\n".join(lines) + "\n")


main()
