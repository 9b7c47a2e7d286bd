"""What counts as passed and failed: a suite must not be able to lose a failure."""

import json
import sys
from pathlib import Path

import pytest

from tools import testing, totals
from tools.totals import Totals

WRITE_REPORT = """
import json, os, sys
path = os.environ["GTEST_OUTPUT"].removeprefix("json:")
cases = [
    {"name": "Holds", "status": "RUN", "result": "COMPLETED"},
    {"name": "Waits", "status": "RUN", "result": "SKIPPED"},
]
if "fail" in sys.argv:
    cases.append({"name": "Breaks", "status": "RUN", "result": "COMPLETED", "failures": [{"failure": "1 != 2"}]})
json.dump({"testsuites": [{"name": "Shape", "testsuite": cases}]}, open(path, "w"))
"""


def run_program(tmp_path: Path, code: str, *arguments: str) -> Totals:
    program = {"name": "graph", "command": [sys.executable, "-c", code, *arguments]}
    return testing.run_google_test(program, tmp_path, "*", "release")


def test_cases_of_a_program_are_counted(tmp_path):
    result = run_program(tmp_path, WRITE_REPORT, "fail")
    assert (result.passed, result.skipped, result.failures) == (1, 1, ["graph: Shape.Breaks"])


def test_a_crash_is_a_failure(tmp_path):
    result = run_program(tmp_path, "import os; os.abort()")
    assert (result.passed, result.failed) == (0, 1)
    assert "-6" in result.failures[0]


def test_a_program_that_ends_before_its_report_is_a_failure(tmp_path):
    result = run_program(tmp_path, "pass")
    assert (result.passed, result.failed) == (0, 1)


def test_an_exit_code_that_contradicts_the_report_is_a_failure(tmp_path):
    result = run_program(tmp_path, WRITE_REPORT + "sys.exit(1)")
    assert (result.passed, result.failed) == (1, 1)


def test_a_hanging_program_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(testing, "PROGRAM_SECONDS", 0.5)
    result = run_program(tmp_path, "import time; time.sleep(60)")
    assert (result.passed, result.failed) == (0, 1)


def test_a_program_that_was_not_built_is_a_failure(tmp_path):
    result = testing.run_google_test({"name": "graph"}, tmp_path, "*", "release")
    assert result.failures == ["graph: its program was not built"]


def test_pytest_cases_are_counted(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="a" name="holds"/>'
        '<testcase classname="a" name="breaks"><failure/></testcase>'
        '<testcase classname="a" name="cannot_start"><error/></testcase>'
        '<testcase classname="a" name="waits"><skipped/></testcase></testsuite></testsuites>'
    )
    result = totals.of_pytest("pytest", report, 1)
    assert (result.passed, result.skipped, result.failures) == (1, 1, ["a.breaks", "a.cannot_start"])


@pytest.mark.parametrize("exit_code", [2, 3, 5, -11])
def test_pytest_that_did_not_run_to_its_end_is_a_failure(tmp_path, exit_code):
    assert totals.of_pytest("pytest", tmp_path / "missing.xml", exit_code).failed == 1
    report = tmp_path / "report.xml"
    report.write_text('<testsuites><testsuite><testcase classname="a" name="holds"/></testsuite></testsuites>')
    assert totals.of_pytest("pytest", report, exit_code).failed == 1


def test_a_suite_without_a_case_is_a_failure():
    assert testing.run_suite("fuzz", lambda: Totals("fuzz"), must_have_cases=True).failed == 1


def test_every_folder_with_sources_must_have_a_test_program():
    assert {"base", "graph"} <= testing.expected_programs("asan-ubsan") <= testing.expected_programs("release")


def test_the_last_line_is_plain(capsys):
    results = [Totals("a", passed=3), Totals("b", passed=1, failures=["b: x"])]
    assert testing.report(results) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "4 passed, 1 failed"
    assert testing.report([Totals("a", passed=3, skipped=2)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 passed, 0 failed, 2 skipped"


def test_reports_are_read_as_google_test_writes_them(tmp_path):
    """A disabled case is neither passed nor failed."""
    report = tmp_path / "graph.json"
    cases = [
        {"name": "DISABLED_Later", "status": "NOTRUN", "result": "SUPPRESSED"},
        {"name": "Holds", "status": "RUN", "result": "COMPLETED"},
    ]
    report.write_text(json.dumps({"testsuites": [{"name": "Shape", "testsuite": cases}]}))
    result = totals.of_google_test("graph", report, 0)
    assert (result.passed, result.failed, result.skipped) == (1, 0, 0)
