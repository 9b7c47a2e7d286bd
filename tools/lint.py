"""./x lint and ./x format: one format for C++ and Python, and the dependency rule between folders."""

from __future__ import annotations

from pathlib import Path

from tools import environment, layers
from tools.console import ROOT, Failure, error, heading, output_of, run, succeeds
from tools.totals import Totals

BIN = environment.VENV / "bin"


def tracked(*patterns: str) -> list[Path]:
    """Files git knows or would know, so that build outputs are left alone."""
    listed = output_of(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns])
    if listed is None:
        raise Failure(
            "git does not list the files of this checkout.\nWhat to do: run ./x inside a git checkout of the repository"
        )
    return [path for path in map(Path, listed.splitlines()) if (ROOT / path).is_file()]


def cpp_sources() -> list[Path]:
    return tracked("*.cc", "*.h")


def check() -> Totals:
    """Every check once, each of which counts as one test."""
    environment.setup()
    totals = Totals("lint")
    sources = cpp_sources()
    totals.count("clang-format", succeeds([BIN / "clang-format", "--dry-run", "--Werror", *sources]))
    found = layers.violations(ROOT)
    for violation in found:
        print(violation)
    totals.count("dependency rule", not found)
    totals.count("ruff format", succeeds([BIN / "ruff", "format", "--check", "--quiet", "."]))
    totals.count("ruff check", succeeds([BIN / "ruff", "check", "--quiet", "."]))
    return totals


def lint() -> int:
    heading("checking format, dependencies and style")
    totals = check()
    if totals.failures:
        error(f"lint failed: {', '.join(totals.failures)}. ./x format mends what is only format")
        return 1
    print("lint: nothing to complain about")
    return 0


def format_sources() -> None:
    environment.setup()
    heading("formatting")
    if sources := cpp_sources():
        run([BIN / "clang-format", "-i", *sources], "read the message above")
    run([BIN / "ruff", "check", "--quiet", "--fix-only", "."], "read the message above")
    run([BIN / "ruff", "format", "--quiet", "."], "read the message above")
