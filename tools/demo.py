"""./x demo: an example trained in C++ and in PyTorch, side by side."""

from __future__ import annotations

from tools import build, environment
from tools.console import ROOT, Usage, heading, run

EXAMPLES = ("mnist", "shakespeare")


def demo(name: str, arguments: list[str]) -> None:
    if name not in EXAMPLES:
        raise Usage(f"there is no demo {name}; demos: {', '.join(EXAMPLES)}")
    build.build("release")
    heading(f"demo {name}")
    variables = {"TESSER_BINARY": str(build.tesser()), "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"}
    command = [environment.PYTHON, "-m", f"examples.{name}.demo", *arguments]
    run(command, f"read the message above; examples/{name}/README.md says what the demo does", variables)
