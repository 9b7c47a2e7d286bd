"""A model's buffers (running statistics, say) as one tensor that travels with the weights, from rank 0 to all."""

from __future__ import annotations

import torch

from tesser.hub.error import HubInputError

# The first element counts what was sent, so that who has seen it leaves its buffers alone. Any type on the wire holds
# these numbers.
COUNTS = 128


class Buffers:
    """Bytes are numbers that gradients' type holds exactly: of float32 two bytes make one, else one."""

    def __init__(self, model: torch.nn.Module, dtype: torch.dtype) -> None:
        self._unit = torch.int16 if dtype == torch.float32 else torch.uint8
        self._places = [
            (module, name)
            for module in model.modules()
            for name, each in module._buffers.items()
            if each is not None and each.numel() != 0
        ]
        self._bytes = sum(each.numel() * each.itemsize for each in self._tensors())
        self._packed: torch.Tensor | None = None
        self._seen: float | None = None

    @property
    def elements(self) -> int:
        """0: there are none."""
        return 0 if not self._places else 1 + -(-self._bytes // self._unit.itemsize)

    def modules(self) -> set[torch.nn.Module]:
        return {module for module, _ in self._places}

    def pack(self) -> torch.Tensor:
        """float32."""
        parts = [each.detach().cpu().contiguous().view(-1).view(torch.uint8) for each in self._tensors()]
        if sum(each.numel() for each in parts) != self._bytes:
            names = ", ".join(sorted({name for _, name in self._places}))
            raise HubInputError(
                f"a buffer of the model has another size than at tesser.hub.wrap (there are {names})\nWhat to do: "
                "broadcast_buffers=False leaves buffers alone, or wrap once they have their size"
            )
        padding = (self.elements - 1) * self._unit.itemsize - self._bytes
        packed = torch.cat([*parts, torch.zeros(padding, dtype=torch.uint8)]).view(self._unit)
        is_new = self._packed is None or not torch.equal(packed, self._packed[1:].to(self._unit))
        count = 0.0 if self._packed is None else (self._packed[0] + is_new) % COUNTS
        self._packed = torch.cat([torch.tensor([count]), packed.float()])
        return self._packed

    def pack_news(self) -> torch.Tensor | None:
        """None: nothing has changed since it was packed."""
        before = self._packed
        after = self.pack()
        return None if before is not None and before[0] == after[0] else after

    def take(self, packed: torch.Tensor) -> None:
        """Rank 0's become this replica's, unless they were taken before."""
        if packed[0].item() == self._seen:
            return
        self._seen = packed[0].item()
        bytes_ = packed[1:].to(self._unit).view(torch.uint8)[: self._bytes]
        tensors = self._tensors()
        with torch.no_grad():
            for tensor, part in zip(tensors, bytes_.split([each.numel() * each.itemsize for each in tensors])):
                tensor.copy_(part.clone().view(tensor.dtype).view(tensor.shape))

    def forget(self) -> None:
        """What comes next is taken in any case."""
        self._seen = None

    def _tensors(self) -> list[torch.Tensor]:
        # As they are now: a module may have put another in the place.
        found = (module._buffers.get(name) for module, name in self._places)
        return list({id(each): each for each in found if each is not None}.values())
