"""What tensors a hub takes, and their elements in the order in which they travel."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tesser.hub.error import HubInputError
from tesser.hub.guarded import is_guarded


def check_parameter(name: str, parameter: torch.Tensor) -> None:
    """Whether it can be exchanged."""
    if is_guarded(parameter):
        raise HubInputError(
            f"{name} is at a hub already\nWhat to do: close() the optimizer that tesser.hub.wrap gave back for it first"
        )
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


def rows_of(gradient: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers of the rows that an embedding's gradient has, and what it is in them."""
    if gradient.layout is torch.strided:
        return torch.arange(len(gradient)), gradient.to(dtype)
    gradient = gradient.coalesce()
    return gradient.indices()[0], gradient.values().to(dtype)


def flat(tensor: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """The elements in the order of the parameter's memory."""
    like = tensor if like is None else like
    if tensor.stride() != like.stride():
        tensor = torch.empty_strided(like.shape, like.stride()).copy_(tensor)
    return tensor.as_strided((tensor.numel(),), (1,))
