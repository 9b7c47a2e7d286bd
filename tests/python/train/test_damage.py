"""A digit that changes in a file of the program is refused, by the command and by Python, and never trained."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from tesser.interpreter import Interpreter
from tesser.lowered import LoweredInterpreter
from tesser.program import Program, ProgramError, with_checksum
from tests.python.commands import run_tesser, train


def change_digit(file: Path, before: str) -> str:
    """Changes the first digit after a text; returns what stood there."""
    text = file.read_text()
    place = text.index(before) + len(before)
    place += next(index for index, character in enumerate(text[place:]) if character.isdigit())
    file.write_text(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :])
    return text


def without_checksum(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith('"checksum":'))


@pytest.mark.parametrize("name", ["program.json", "forward.json"])
def test_a_program(programs: Path, data: Path, tmp_path: Path, name: str) -> None:
    program = shutil.copytree(programs / "plain.tesser", tmp_path / "plain.tesser")
    file = program / name
    original = change_digit(file, '"nodes":[')
    assert with_checksum(without_checksum(original)) == original
    with pytest.raises(ProgramError, match='was damaged or changed by hand; if by hand, delete the line "checksum"'):
        Interpreter.open(program, name)
    refused = train(program, data / "train", "--steps", 1, "--evaluate", data / "check")
    assert refused.code == 2 and not refused.of("step")
    assert f"{file}: has checksum" in refused.errors
    assert 'if by hand, delete the line "checksum"' in refused.errors
    file.write_text(without_checksum(original))
    assert Program.read(file).to_text() == without_checksum(original)
    assert train(program, data / "train", "--steps", 1, "--evaluate", data / "check").code == 0


def test_a_run_goes_on_with_a_program_that_lost_its_checksum(programs: Path, data: Path, tmp_path: Path) -> None:
    program = shutil.copytree(programs / "plain.tesser", tmp_path / "plain.tesser")
    words = ["--checkpoint", tmp_path / "run", "--resume"]
    assert train(program, data / "train", "--steps", 2, *words).code == 0
    file = program / "program.json"
    file.write_text(without_checksum(file.read_text()))
    run = train(program, data / "train", "--steps", 3, *words)
    assert run.code == 0 and len(run.losses) == 1


def test_a_plan_and_what_it_is_lowered_to(programs: Path, tmp_path: Path) -> None:
    plan, lowered = tmp_path / "plain.plan", tmp_path / "plain.lowered"
    assert run_tesser("plan", programs / "plain.tesser", "-w", 2, "--preset", "tofu", "-o", plan).code == 0
    assert run_tesser("lower", plan, "-o", lowered).code == 0
    for file, before, words in (
        (plan, '"layouts":[', ["lower", plan, "-o", lowered]),
        (lowered / "worker-1.json", '"nodes":[', ["show", lowered, "--worker", 1]),
        (lowered / "lowering.json", '"transfers":', ["show", lowered]),
    ):
        original = change_digit(file, before)
        refused = run_tesser(*words)
        assert refused.code == 2 and f"{file}: has checksum" in refused.errors
        if file != plan:
            with pytest.raises(ProgramError, match=f"{file.name}: has checksum"):
                LoweredInterpreter.open(lowered, state=programs / "plain.tesser")
        file.write_text(original)
        assert run_tesser(*words).code == 0


def test_a_tensor_of_a_type_that_nobody_asked_for(classifier: Path, data: Path, tmp_path: Path) -> None:
    def write(name: str, kinds: dict[str, tuple[str, np.ndarray]]) -> Path:
        header, contents = {}, b""
        for key, (kind, array) in kinds.items():
            end = len(contents) + array.nbytes
            header[key] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(contents), end]}
            contents += array.tobytes()
        text = json.dumps(header).encode()
        (tmp_path / name).write_bytes(struct.pack("<Q", len(text)) + text + contents)
        return tmp_path / name

    images, labels = (np.load(data / "train" / f"{name}.npy") for name in ("images", "labels"))
    more = ("F8_E4M3", np.zeros(5, np.uint8))
    beside = write("beside.safetensors", {"images": ("F32", images), "z": more, "labels": ("I64", labels)})
    run = train(classifier, beside, "--steps", 3)
    assert run.code == 0, run.errors
    assert run.losses == train(classifier, data / "train", "--steps", 3).losses
    asked = write("asked.safetensors", {"images": ("F32", images), "labels": more})
    refused = train(classifier, asked, "--steps", 3)
    assert refused.code == 2
    assert "tensor 'labels' has dtype \"F8_E4M3\", which is not supported" in refused.errors
