"""The dependency rule finds what breaks it, and nothing else."""

from pathlib import Path

import pytest

from tools import layers


def check(root: Path, name: str, include: str) -> list[str]:
    for header in ("base/result.h", "graph/program.h", "runtime/executor.h", "optimizer/adam.h"):
        path = root / "src" / header
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"// A file.\n{include}\n")
    return layers.violations(root)


@pytest.mark.parametrize(
    ("name", "include"),
    [
        ("src/graph/read.cc", '#include "base/result.h"'),
        ("src/memory/plan.cc", '#include "base/result.h"'),  # through graph
        ("src/runtime/train.cc", '#include "optimizer/adam.h"'),
        ("src/runtime/executor.cc", "#include <ATen/ATen.h>"),
        ("src/runtime/kernels.h", "#include <ATen/core/Tensor.h>"),
        ("src/base/result.h", "#include <tl/expected.hpp>"),
        ("src/base/file.cc", "#include <sys/mman.h>"),
        ("src/base/file.cc", "#include <filesystem>"),
        ("src/optimizer/adam.cc", "#include <immintrin.h>"),
        ("src/base/json.cc", "#include <nlohmann/json.hpp>"),
        ("tests/graph/read_test.cc", "#include <gtest/gtest.h>"),
        ("tests/graph/read_test.cc", '#include "graph/program.h"'),
    ],
)
def test_allowed(tmp_path, name, include):
    assert check(tmp_path, name, include) == []


@pytest.mark.parametrize(
    ("name", "include", "reason"),
    [
        ("src/base/file.cc", '#include "graph/program.h"', "base may use no other folder"),
        ("src/graph/read.cc", '#include "runtime/executor.h"', "graph may use base"),
        ("src/memory/plan.cc", '#  include "optimizer/adam.h"', "memory may use base, graph"),
        ("src/platform/server.cc", '#include "runtime/executor.h"', "platform may use base"),
        ("tests/graph/read_test.cc", '#include "runtime/executor.h"', "tests/graph may not include"),
        ("src/runtime/train.cc", "#include <ATen/ATen.h>", "ATen stays inside"),
        ("src/cli/main.cc", "#include <torch/torch.h>", "ATen stays inside"),
        ("src/runtime/kernels.cc", "#include <fmt/format.h>", "fmt stays inside"),
        ("src/graph/read.cc", "#include <nlohmann/json.hpp>", "nlohmann-json stays inside"),
        ("src/runtime/passes/layout.cc", "#include <ATen/core/Tensor.h>", "ATen stays inside"),
        ("src/graph/print.h", "#include <fmt/format.h>", "header that other folders see"),
        ("src/graph/read.cc", "#include <boost/asio.hpp>", "belongs to no library"),
        ("src/graph/read.cc", '#include "program.h"', "is no file of src/"),
        ("src/helpers/all.cc", "#include <vector>", "is not a folder"),
    ],
)
def test_refused(tmp_path, name, include, reason):
    found = check(tmp_path, name, include)
    assert len(found) == 1
    assert found[0].startswith(f"{name}:")
    assert reason in found[0]


def test_no_folder_depends_on_itself_through_others():
    for folder, uses in layers.MAY_USE.items():
        assert all(folder not in layers.may_include(used) for used in uses)
