"""The program of docs/formats/program.md as Python values: what capture writes and the interpreter runs.

Reading checks the form only; ``tesser show`` and every later stage verify the whole.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

FORMAT = "tesser.program"
VERSION = 1
STEP_FILE = "program.json"
FORWARD_FILE = "forward.json"
STATE_FILE = "state.safetensors"

DTYPE_NAMES: dict[torch.dtype, str] = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.bool: "bool",
}
DTYPES: dict[str, torch.dtype] = {name: dtype for dtype, name in DTYPE_NAMES.items()}


# The line by which a file states the checksum of all its other bytes.
CHECKSUM_LINE = re.compile(r'^"checksum":"([^"\n]*)",\n', re.MULTILINE)


class ProgramError(Exception):
    """A file that is no program: says which file and why."""


@dataclass(frozen=True)
class Ref:
    """Argument that is the value of this name."""

    name: str


@dataclass(frozen=True)
class Enumerator:
    """One of PyTorch's enumerations: kind is ``dtype``, ``layout``, ``device`` or ``memory_format``."""

    kind: str
    name: str


@dataclass
class Input:
    name: str
    role: str
    dtype: str
    shape: list[int]
    trainable: bool | None = None
    aliases: list[str] | None = None
    of: str | None = None
    slot: str | None = None
    initial: str | None = None
    persistent: bool | None = None
    schedule: int | None = None
    begin: list[int] | None = None  # of one worker's part: where it begins in the whole (docs/formats/lowered.md)
    whole: list[int] | None = None

    @property
    def is_state(self) -> bool:
        return self.role in ("parameter", "optimizer_state", "buffer")

    @property
    def has_stored_value(self) -> bool:
        """Whether state.safetensors holds its initial value."""
        return self.role == "constant" or (self.is_state and self.initial is None)


@dataclass
class Result:
    name: str
    dtype: str
    shape: list[int]


@dataclass
class Node:
    name: str
    op: str
    args: list[Any]
    out: list[Result | None]
    phase: str
    forward: str | None = None
    module: str | None = None
    source: str | None = None
    recurrence: str | None = None
    timestep: int | None = None
    micro_batch: int | None = None


@dataclass
class Output:
    role: str
    value: str
    name: str | None = None


@dataclass
class Program:
    name: str
    kind: str
    producer: str
    first_step: int = 0
    schedules: list[dict[str, Any]] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)

    def inputs_of(self, *roles: str) -> list[Input]:
        return [value for value in self.inputs if value.role in roles]

    @property
    def loss(self) -> str | None:
        return next((output.value for output in self.outputs if output.role == "loss"), None)

    def to_text(self) -> str:
        """The file's text without its checksum: equal programs give equal texts."""
        lines = ["{"]
        for key, value in (
            ("format", FORMAT),
            ("version", VERSION),
            ("name", self.name),
            ("kind", self.kind),
            ("producer", self.producer),
            ("first_step", self.first_step),
        ):
            lines.append(f'"{key}":{_dump(value)},')
        sections = (
            ("schedules", [_dump(_encode(schedule)) for schedule in self.schedules]),
            ("inputs", [_dump(_input_entry(value)) for value in self.inputs]),
            ("nodes", [_dump(_node_entry(node)) for node in self.nodes]),
            ("outputs", [_dump(_output_entry(output)) for output in self.outputs]),
        )
        for index, (key, entries) in enumerate(sections):
            end = "," if index + 1 < len(sections) else ""
            if entries:
                lines.append(f'"{key}":[')
                lines.append(",\n".join(entries))
                lines.append(f"]{end}")
            else:
                lines.append(f'"{key}":[]{end}')
        lines.append("}")
        return "\n".join(lines) + "\n"

    def write(self, path: Path) -> None:
        """Writes the text with its checksum."""
        path.write_bytes(with_checksum(self.to_text()).encode())

    @staticmethod
    def from_text(text: str, where: str = "program") -> Program:
        """Raises ProgramError for a text that is not of this format and version."""
        try:
            document = json.loads(text)
        except ValueError as error:
            raise ProgramError(f"{where}: not JSON: {error}") from None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ProgramError(f"{where}: not a tesser program (no format {FORMAT!r})")
        if document.get("version") != VERSION:
            raise ProgramError(f"{where}: version {document.get('version')!r}; this tesser reads version {VERSION}")
        check_checksum(text, document, where)
        try:
            return Program(
                name=document["name"],
                kind=document["kind"],
                producer=document["producer"],
                first_step=document["first_step"],
                schedules=document["schedules"],
                inputs=[Input(**entry) for entry in document["inputs"]],
                nodes=[_read_node(entry) for entry in document["nodes"]],
                outputs=[
                    Output(entry["role"], _reference_name(entry["value"]), entry.get("name"))
                    for entry in document["outputs"]
                ],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProgramError(f"{where}: malformed entry: {error}") from None

    @staticmethod
    def read(path: Path | str) -> Program:
        path = Path(path)
        try:
            text = path.read_bytes().decode("utf-8")
        except OSError as error:
            raise ProgramError(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ProgramError(f"{path}: not UTF-8 text") from None
        return Program.from_text(text, str(path))


def with_checksum(text: str) -> str:
    """The text of a file with a line that states its checksum, after that of its version."""
    end = text.index("\n", text.index('"version":')) + 1
    return f'{text[:end]}"checksum":"{zlib.crc32(text.encode()):08x}",\n{text[end:]}'


def check_checksum(text: str, document: dict[str, Any], where: str) -> None:
    """Raises ProgramError where `text`, which is `document`, states another checksum than it has."""
    if "checksum" not in document:
        return
    stated = CHECKSUM_LINE.search(text)
    rest = CHECKSUM_LINE.sub("", text, count=1)
    found = f"{zlib.crc32(rest.encode()):08x}"
    if stated is None or stated[1] != found:
        told = f"states {stated[1]}" if stated else "states one on no line of its own"
        raise ProgramError(
            f"{where}: has checksum {found} and {told}: it was damaged or changed by hand; if by hand, delete the "
            f'line "checksum"'
        )


def refs_in(argument: Any) -> list[str]:
    """Names of the values an argument reads."""
    if isinstance(argument, Ref):
        return [argument.name]
    if isinstance(argument, list):
        return [entry.name for entry in argument if isinstance(entry, Ref)]
    return []


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _encode(argument: Any) -> Any:
    if isinstance(argument, Ref):
        return "%" + argument.name
    if isinstance(argument, Enumerator):
        return {argument.kind: argument.name}
    if isinstance(argument, float) and not math.isfinite(argument):
        return {"float": "nan" if math.isnan(argument) else "inf" if argument > 0 else "-inf"}
    if isinstance(argument, list):
        return [_encode(entry) for entry in argument]
    if isinstance(argument, dict):
        return {key: _encode(entry) for key, entry in argument.items()}
    return argument


def _decode(argument: Any) -> Any:
    if isinstance(argument, str) and argument.startswith("%"):
        return Ref(argument[1:])
    if isinstance(argument, list):
        return [_decode(entry) for entry in argument]
    if isinstance(argument, dict):
        if len(argument) != 1:
            raise ValueError(f"argument {argument!r}")
        ((kind, name),) = argument.items()
        if kind == "float":
            return float(name)
        return Enumerator(kind, name)
    return argument


def _reference_name(text: str) -> str:
    if not isinstance(text, str) or not text.startswith("%"):
        raise ValueError(f"{text!r} is no reference to a value")
    return text[1:]


def _entry(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value for key, value in pairs if value is not None}


def _input_entry(value: Input) -> dict[str, Any]:
    return _entry(
        [
            ("name", value.name),
            ("role", value.role),
            ("dtype", value.dtype),
            ("shape", value.shape),
            ("trainable", value.trainable),
            ("aliases", value.aliases),
            ("of", value.of),
            ("slot", value.slot),
            ("initial", value.initial),
            ("persistent", value.persistent),
            ("schedule", value.schedule),
            ("begin", value.begin),
            ("whole", value.whole),
        ]
    )


def _node_entry(node: Node) -> dict[str, Any]:
    return _entry(
        [
            ("name", node.name),
            ("op", node.op),
            ("args", _encode(node.args)),
            ("out", [None if result is None else [result.name, result.dtype, result.shape] for result in node.out]),
            ("phase", node.phase),
            ("forward", node.forward),
            ("module", node.module),
            ("source", node.source),
            ("recurrence", node.recurrence),
            ("timestep", node.timestep),
            ("micro_batch", node.micro_batch),
        ]
    )


def _read_node(entry: dict[str, Any]) -> Node:
    fields = dict(entry)
    fields["args"] = _decode(fields["args"])
    fields["out"] = [None if result is None else Result(*result) for result in fields["out"]]
    return Node(**fields)


def _output_entry(output: Output) -> dict[str, Any]:
    return _entry([("role", output.role), ("name", output.name), ("value", "%" + output.value)])
