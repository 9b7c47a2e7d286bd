"""./x setup: Debian packages and the Python environment .venv, with PyTorch in it.

A stamp in .venv holds a hash of everything setup would do, so that a second run ends at once.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from pathlib import Path

from tools.console import ROOT, Failure, heading, output_of, run, succeeds

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
PACKAGES = ROOT / "tools" / "debian-packages.txt"
REQUIREMENTS = ROOT / "tools" / "requirements.txt"
STAMP = VENV / "tesser-setup"
OLDEST_PYTHON = (3, 11)


def setup() -> None:
    if STAMP.is_file() and STAMP.read_text() == fingerprint() and PYTHON.exists():
        return
    install_debian_packages()
    make_virtual_environment()
    install_python_packages()
    STAMP.write_text(fingerprint())
    heading(f"setup is done: {PYTHON.relative_to(ROOT)} has PyTorch {torch_version()}")


def fingerprint() -> str:
    digest = hashlib.sha256(str(ROOT).encode())
    for source in (PACKAGES, REQUIREMENTS, ROOT / "python" / "pyproject.toml", Path(__file__)):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def listed_packages(source: Path = PACKAGES) -> list[str]:
    lines = (line.strip() for line in source.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def is_installed(package: str) -> bool:
    return output_of(["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]) == "installed"


def default_clang_version() -> str | None:
    version = output_of(["clang", "-dumpversion"])
    return version.split(".")[0] if version else None


def install_debian_packages() -> None:
    packages = listed_packages()
    if not can_install(packages):
        return
    install_missing([package for package in packages if "{clang}" not in package])
    clang = default_clang_version()
    if clang is None:
        raise Failure("clang does not start.\nWhat to do: apt-get install --reinstall clang, then ./x setup")
    install_missing([package.replace("{clang}", clang) for package in packages if "{clang}" in package])


def can_install(packages: list[str]) -> bool:
    """Whether this is a Debian system; if not, says what is needed."""
    if shutil.which("dpkg-query") and shutil.which("apt-get"):
        return True
    names = ", ".join(packages)
    heading(f"this is no Debian system, so no packages are installed here; the build needs what Debian calls: {names}")
    return False


def install_listed(source: Path) -> None:
    """Installs what a list besides tools/debian-packages.txt names."""
    packages = listed_packages(source)
    if can_install(packages):
        install_missing(packages)


def install_missing(packages: list[str]) -> None:
    missing = [package for package in packages if not is_installed(package)]
    if not missing:
        return
    names = " ".join(missing)
    by_hand = f"apt-get update && apt-get install {names}"
    become_root: list[str] = []
    if os.geteuid() != 0:
        if not shutil.which("sudo"):
            raise Failure(
                f"these Debian packages are missing and this user may not install them: {names}\n"
                f"What to do: as root, {by_hand}"
            )
        become_root = ["sudo"] if sys.stdin.isatty() else ["sudo", "--non-interactive"]
    heading(f"installing Debian packages: {names}")
    apt_get = [*become_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet", "--yes"]
    advice = f"check the network and the rights of this user, or as root, {by_hand}; then ./x setup again"
    if not succeeds([*apt_get, "update"]):
        heading("apt-get update failed; trying with the package lists that are here")
    run([*apt_get, "install", "--no-install-recommends", *missing], advice)


def find_python() -> str:
    """The first Python of 3.11 or newer that can make virtual environments."""
    names = [sys.executable, "python3", *(f"python3.{minor}" for minor in range(11, 20))]
    older = set()
    for name in names:
        version = output_of([name, "-c", "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2])"])
        if version and tuple(map(int, version.split("."))) >= OLDEST_PYTHON:
            return name
        if version:
            older.add(version)
    found = f"found only {', '.join(sorted(older))}" if older else "found none"
    raise Failure(
        f"tesser needs Python 3.11 or newer with its venv module, and {found}.\n"
        "What to do: apt-get install python3 python3-venv (Debian 12 or 13), then ./x setup"
    )


def make_virtual_environment() -> None:
    if PYTHON.exists() and output_of([PYTHON, "-m", "pip", "--version"]):
        return
    python = find_python()
    heading(f"making the Python environment .venv with {python}")
    run(
        [python, "-m", "venv", "--clear", VENV], "see the message above; apt-get install python3-venv is the usual cure"
    )


def install_python_packages() -> None:
    heading("installing Python packages (PyTorch is large: this takes some minutes the first time)")
    pip = [PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    advice = (
        "check the network, then ./x setup again. Without a network, put the wheels that "
        "tools/requirements.txt names into a directory and set PIP_FIND_LINKS to it and PIP_NO_INDEX=1"
    )
    run([*pip, "--requirement", REQUIREMENTS], advice)
    run([*pip, "--no-build-isolation", "--no-deps", "--editable", ROOT / "python"], advice)


def torch_version() -> str:
    text = output_of([PYTHON, "-c", "import torch; print(torch.__version__)"])
    if text is None or not re.match(r"\d+\.", text):
        raise Failure(
            "PyTorch was installed into .venv and cannot be imported.\nWhat to do: remove .venv, then ./x setup"
        )
    return text
