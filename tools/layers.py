"""The dependency rule: what a folder of src/ and of tests/ may include.

The tables here are those of docs/architecture.md. A folder may include what it names, and what those may include in
turn.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# What each folder of src/ may use directly.
MAY_USE: dict[str, set[str]] = {
    "base": set(),
    "graph": {"base"},
    "layout": {"graph"},
    "tdl": {"graph"},
    "memory": {"layout"},
    "partition": {"tdl", "memory"},
    "lowering": {"partition", "layout"},
    "transport": {"base"},
    "optimizer": {"base"},
    "kernels": {"base"},
    "control": {"base"},
    "hub": {"transport", "optimizer", "control"},
    "runtime": {"lowering", "hub", "kernels"},
    "platform": {"control"},
    "cli": {"runtime", "platform"},
}


@dataclass(frozen=True)
class Library:
    """A library that is not ours: which headers are its, and which sources may include them."""

    name: str
    headers: str  # regular expression over the included path
    allowed: str  # regular expression over the including file's path
    place: str  # the same for people
    in_headers: bool = False  # whether headers that other folders see may include it


LIBRARIES = [
    Library(
        "ATen",
        r"(ATen|c10|torch|caffe2)/",
        r"src/runtime/(executor|kernels|argument_reader|step_allocator)",
        "src/runtime/{executor,kernels,argument_reader,step_allocator}*",
    ),
    Library("UCX", r"(uc[pst]|infiniband|rdma)/", r"src/transport/ucx_", "src/transport/ucx_*", in_headers=True),
    Library(
        "SQLite",
        r"(sqlite3|SQLiteCpp/)",
        r"(src|tests)/platform/store/[a-z_]*\.cc$",
        "sources of src/platform/store and its tests",
    ),
    Library(
        "libarchive", r"archive(_entry)?\.h", r"src/platform/server/[a-z_]*\.cc$", "sources of src/platform/server"
    ),
    Library(
        "yaml-cpp",
        r"yaml-cpp/",
        r"src/platform/(job/[a-z_]*|engine/kubernetes_access)\.cc$",
        "sources of src/platform/job, and src/platform/engine/kubernetes_access.cc",
    ),
    Library("RE2", r"re2/", r"src/platform/job/metric_pattern\.cc$", "src/platform/job/metric_pattern.cc"),
    Library(
        "zlib", r"zlib\.h$", r"src/platform/(client|server)/[a-z_]*\.cc$", "sources of src/platform/{client,server}"
    ),
    Library("libcurl", r"curl/", r"src/platform/web/[a-z_]*\.cc$", "sources of src/platform/web"),
    Library("cpp-httplib", r"httplib\.h$", r"src/control/[a-z_]*\.cc$", "sources of src/control"),
    Library("openssl", r"openssl/", r"src/control/tls\.cc$", "src/control/tls.cc"),
    Library("hwloc", r"hwloc", r"src/hub/topology\.cc$", "src/hub/topology.cc"),
    Library("prometheus-cpp", r"prometheus/", r"src/hub/metrics\.cc$", "src/hub/metrics.cc"),
    Library("CLI11", r"CLI/", r"src/cli/", "src/cli"),
    Library("nlohmann-json", r"nlohmann/", r"src/base/json\.cc$", "src/base/json.cc"),
    Library(
        "fmt",
        r"fmt/",
        r"src/(?!optimizer/|kernels/|hub/(fused|sum)_loops|runtime/(executor|kernels|step_allocator))",
        "sources that see neither ATen nor instruction sets",
    ),
    Library("expected", r"tl/", r"src/base/result\.h$", "src/base/result.h", in_headers=True),
    Library("GoogleTest", r"g(test|mock)/", r"tests/", "tests", in_headers=True),
    Library("gRPC", r"grpc(pp)?/", r"bench/transfer/", "bench/transfer"),
    Library("Google Benchmark", r"benchmark/", r"bench/", "bench"),
]
# The C++ and C libraries, POSIX and Linux, and the compiler's own vector headers.
SYSTEM = re.compile(r"^([a-z0-9_]+|(sys|linux|netinet|arpa|net|bits)/[\w/]+\.h|[a-z0-9_]+\.h)$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


@cache
def may_include(folder: str) -> frozenset[str]:
    reachable = {folder}
    for used in MAY_USE[folder]:
        reachable |= may_include(used)
    return frozenset(reachable)


def violations(root: Path) -> list[str]:
    """One line for each include of src/, tests/ and bench/ that breaks the rule: file:line, what, and what to do."""
    found = []
    for top in ("src", "tests", "bench"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in (".h", ".cc", ".inc"):
                found += check_file(root, path)
    return found


def check_file(root: Path, path: Path) -> list[str]:
    name = path.relative_to(root).as_posix()
    top, *between = name.split("/")[:-1]
    folder = between[0] if between else ""
    if top == "src" and folder not in MAY_USE:
        return [f"{name}:1: src/{folder} is not a folder of docs/architecture.md; add it there and to tools/layers.py"]
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if include := INCLUDE.match(line):
            problem = check_include(root, name, top, folder, include[1] == "<", include[2])
            if problem:
                found.append(f"{name}:{number}: {problem}")
    return found


def check_include(root: Path, name: str, top: str, folder: str, angled: bool, header: str) -> str | None:
    target = header.split("/")[0]
    if not angled and target in MAY_USE and (root / "src" / header).exists():
        if folder in MAY_USE and target not in may_include(folder):
            uses = ", ".join(sorted(may_include(folder) - {folder})) or "no other folder"
            return f'{top}/{folder} may not include "{header}"; {folder} may use {uses}'
        return None
    for library in LIBRARIES:
        if not re.match(library.headers, header):
            continue
        if not re.match(library.allowed, name):
            return f"{library.name} stays inside {library.place}: <{header}> may not be included here"
        if name.endswith(".h") and top == "src" and not library.in_headers and not is_private_header(name):
            return (
                f"<{header}> of {library.name} stands in a header that other folders see; include it in the source file"
            )
        return None
    if angled and SYSTEM.match(header):
        return None
    # bench/ may also use what the tests of the same folder have.
    own = ((root / name).parent / header, root / top / header, root / "tests" / folder / header)
    if not angled and top != "src" and any(path.exists() for path in own):
        return None
    if not angled:
        return f'"{header}" is no file of src/; includes are written "folder/header.h"'
    return f"<{header}> belongs to no library that tools/layers.py knows; say there which folder may include it"


def is_private_header(name: str) -> bool:
    """Headers no other folder sees: the command's, and those of ATen's corner, which the ATen rule itself sees to."""
    return re.match(r"src/(cli/|runtime/(executor|kernels|argument_reader|step_allocator))", name) is not None
