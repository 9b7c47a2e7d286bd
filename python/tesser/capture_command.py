"""``tesser capture``: a step file in, a program directory out."""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import resource
import sys
import time
from collections import Counter
from contextlib import nullcontext, suppress
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from tesser.capture import SUFFIX, Captured, capture, output_place
from tesser.capture_error import CaptureError, SourceLines
from tesser.program import DTYPES
from tesser.step import Step

DESCRIPTION = """\
Writes the training step that a step file returns as a program: forward, backward, clipping and update.
A step file defines step(), which returns tesser.Step(model, loss, batch, optimizer). What stands after -- is given to
step() as keyword arguments: Python's literals, anything else as text."""

EXAMPLES = """\
examples:
  tesser capture examples/mnist/step.py
  tesser capture step.py -o runs/wide.tesser -- width=2048 layers=12
  tesser capture models/gpt.py --no-state -o gpt3.tesser -- size=175b      the model is never allocated
  tesser capture step.py --json                                           one line of JSON for scripts

exit codes: 0 written, 1 the output could not be written, 2 the step cannot become a program"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("step_file", metavar="step.py", type=Path, help="file that defines step()")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        type=Path,
        help=f"program directory to write (default: the step's name, NAME{SUFFIX})",
    )
    parser.add_argument(
        "--no-state",
        action="store_true",
        help="build the model without memory and store no initial values: to plan only",
    )
    parser.add_argument("--name", help="name of the program (default: the step's)")
    parser.add_argument("--json", action="store_true", help="print the summary as one line of JSON")


def main(arguments: list[str] | None = None, program: str = "tesser capture") -> int:
    parser = argparse.ArgumentParser(
        prog=program,
        usage=f"{program} step.py [-o OUT] [--no-state] [--name NAME] [--json] [-- key=value ...]",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    return run(parser.parse_args(given[:end]), given[end + 1 :])


def run(options: argparse.Namespace, step_arguments: list[str]) -> int:
    started = time.monotonic()
    try:
        if options.output is not None:
            output_place(options.output)  # before a model is built and traced for nothing
        step = load_step(options.step_file, _keywords(step_arguments), without_memory=options.no_state)
        captured = capture(
            step, state=not options.no_state, name=options.name, source_root=options.step_file.resolve().parent
        )
    except CaptureError as error:
        _tell(error)
        return 2
    output = options.output or Path(_file_name(captured.program.name) + SUFFIX)
    try:
        captured.save(output)
    except CaptureError as error:
        _tell(error)
        return 1 if isinstance(error.__cause__, OSError) else 2
    summary = summarize(captured, output, time.monotonic() - started)
    return _put(json.dumps(summary) if options.json else _table(summary))


def _tell(error: Exception | str) -> None:
    with suppress(OSError):  # a standard error that takes nothing changes no exit code
        print(f"tesser capture: {error}", file=sys.stderr)


def _put(text: str) -> int:
    """Prints a result and returns the exit code. A reader that has closed its pipe is no error."""
    try:
        if sys.stdout is None:
            raise OSError("it is closed")
        print(text, flush=True)
        return 0
    except BrokenPipeError:
        code = 0
    except OSError as error:
        _tell(f"standard output: cannot write: {error.strerror or error}")
        code = 1
    # What is still buffered would be tried again at the end, and reported as an exception.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code


def load_step(path: Path, keywords: dict[str, Any], without_memory: bool = False) -> Step:
    """Runs a step file and calls its step(); CaptureError with the user's line for whatever goes wrong there."""
    path = path.resolve()
    sources = SourceLines(path.parent, driver=__file__)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CaptureError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    namespace: dict[str, Any] = {"__name__": "tesser_step_file", "__file__": str(path)}
    module = type(sys)("tesser_step_file")
    module.__dict__.update(namespace)
    sys.modules["tesser_step_file"] = module  # so that dataclasses and the like find the module their class is in
    with torch.device("meta") if without_memory else nullcontext():
        _run(sources, lambda: exec(_compiled(text, path), module.__dict__))
        function = module.__dict__.get("step")
        if not callable(function):
            raise CaptureError(
                "the file defines no function step(); it must return tesser.Step(model, loss, batch, optimizer)",
                path.name,
            )
        try:
            inspect.signature(function).bind(**keywords)
        except TypeError as error:
            raise CaptureError(
                f"step{inspect.signature(function)} cannot be called with {keywords}: {error}", path.name
            ) from error
        step = _run(sources, lambda: function(**keywords))
    if not isinstance(step, Step):
        raise CaptureError(
            f"step() returned {type(step).__name__}; it must return tesser.Step(model, loss, batch, optimizer)",
            path.name,
        )
    return step


def _compiled(text: str, path: Path) -> CodeType:
    try:
        return compile(text, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise CaptureError(f"syntax error: {error.msg}", f"{path.name}:{error.lineno}") from error


def _run(sources: SourceLines, function: Any) -> Any:
    try:
        return function()
    except CaptureError:
        raise
    except SystemExit as error:
        raise CaptureError(
            f"the file ends the process (exit code {error.code})", sources.of_traceback(error.__traceback__)
        ) from error
    except Exception as error:
        raise CaptureError(f"{type(error).__name__}: {error}", sources.of_traceback(error.__traceback__)) from error


def _keywords(arguments: list[str]) -> dict[str, Any]:
    keywords = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals or not key.isidentifier():
            raise CaptureError(f"{argument!r} is no argument of step(); write key=value after --")
        try:
            keywords[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            keywords[key] = text
    return keywords


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name).lstrip(".") or "step"


def summarize(captured: Captured, output: Path, seconds: float) -> dict[str, Any]:
    program = captured.program
    parameters = program.inputs_of("parameter")
    count = [_elements(value.shape) for value in parameters]
    return {
        "output": str(output),
        "name": program.name,
        "nodes": len(program.nodes),
        "nodes_by_phase": dict(Counter(node.phase for node in program.nodes)),
        "operators": len({node.op for node in program.nodes}),
        "parameters": sum(count),
        "trainable_parameters": sum(n for n, value in zip(count, parameters) if value.trainable),
        "state_bytes": sum(
            _elements(value.shape) * DTYPES[value.dtype].itemsize for value in program.inputs if value.is_state
        ),
        "has_state": captured.state is not None,
        "forward_nodes": None if captured.forward is None else len(captured.forward.nodes),
        "without_gradient": captured.without_gradient,
        "first_step": program.first_step,
        "seconds": round(seconds, 3),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _elements(shape: list[int]) -> int:
    product = 1
    for dimension in shape:
        product *= dimension
    return product


def _table(summary: dict[str, Any]) -> str:
    phases = ", ".join(f"{count} {phase}" for phase, count in summary["nodes_by_phase"].items())
    rows = [
        ("program", summary["output"] + ("" if summary["has_state"] else "  (without state: to plan only)")),
        ("nodes", f"{summary['nodes']} ({phases}), {summary['operators']} operators"),
        (
            "parameters",
            f"{summary['parameters']:,}"
            + (
                ""
                if summary["parameters"] == summary["trainable_parameters"]
                else f" ({summary['trainable_parameters']:,} trained)"
            ),
        ),
        ("state", _size(summary["state_bytes"])),
    ]
    if summary["forward_nodes"] is not None:
        rows.append(("forward", f"{summary['forward_nodes']} nodes"))
    if summary["first_step"]:
        rows.append(("starts", f"after {summary['first_step']} steps"))
    if summary["without_gradient"]:
        names = summary["without_gradient"]
        rows.append(
            (
                "unused",
                f"the loss does not depend on {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}: never updated",
            )
        )
    rows.append(("capture", f"{summary['seconds']:.1f} s, {_size(summary['peak_bytes'])} of memory at most"))
    return "\n".join(f"{key:<11} {text}" for key, text in rows)


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
