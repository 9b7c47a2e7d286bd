"""./x build: CMake's presets, with the compiler cache and PyTorch of .venv."""

from __future__ import annotations

import json
from pathlib import Path

from tools import environment
from tools.console import PROCESSORS, ROOT, Usage, heading, run

# Checkouts in different folders share what they have compiled.
CCACHE = {
    "CCACHE_BASEDIR": str(ROOT),
    "CCACHE_NOHASHDIR": "true",
    "CCACHE_SLOPPINESS": "pch_defines,time_macros",  # without it nothing with precompiled headers is kept
}


def presets() -> list[str]:
    document = json.loads((ROOT / "CMakePresets.json").read_text())
    return [preset["name"] for preset in document["configurePresets"] if not preset.get("hidden")]


def directory(preset: str) -> Path:
    return ROOT / "build" / preset


def build(preset: str = "release", targets: list[str] | None = None) -> None:
    """Configures and builds; raises Failure when either fails."""
    if preset not in presets():
        raise Usage(f"there is no preset {preset}; presets: {', '.join(presets())}")
    environment.setup()
    heading(f"building {preset} in {directory(preset).relative_to(ROOT)}")
    configure = [
        "cmake",
        "--preset",
        preset,
        f"-DTESSER_PYTHON={environment.PYTHON}",
        "--log-level=WARNING",
        "--no-warn-unused-cli",
    ]
    run(configure, f"read CMake's message above; rm -r build/{preset} starts from nothing")
    command = ["cmake", "--build", directory(preset), "--parallel", str(PROCESSORS)]
    if targets:
        command += ["--target", *targets]
    run(command, "read the compiler's message above", CCACHE)


def tesser() -> Path:
    """The command, as release builds it."""
    return directory("release") / "bin" / "tesser"
