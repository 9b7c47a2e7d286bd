"""What passed and failed, counted in cases, and read from what the test programs themselves wrote.

A program that crashes, that leaves no report, or whose exit code contradicts its report counts as a failure; so does a
suite without a case.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Totals:
    suite: str
    passed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0

    def count(self, case: str, succeeded: bool) -> None:
        if succeeded:
            self.passed += 1
        else:
            self.failures.append(case)

    @property
    def failed(self) -> int:
        return len(self.failures)

    @property
    def cases(self) -> int:
        return self.passed + self.failed + self.skipped

    def add(self, other: Totals) -> None:
        self.passed += other.passed
        self.skipped += other.skipped
        self.failures += other.failures


def of_google_test(name: str, report: Path, exit_code: int | None) -> Totals:
    """Cases of one GoogleTest program. `exit_code` is None when it ran out of time."""
    totals = Totals(name)
    if not report.is_file():
        ending = "ran out of time" if exit_code is None else f"ended with exit code {exit_code}"
        totals.failures.append(f"{name}: {ending} without a report")
        return totals
    for suite in json.loads(report.read_text())["testsuites"]:
        for case in suite["testsuite"]:
            if case.get("result") == "SKIPPED":
                totals.skipped += 1
            elif case.get("status") == "RUN":
                totals.count(f"{name}: {suite['name']}.{case['name']}", not case.get("failures"))
    if exit_code != 0 and not totals.failures:
        totals.failures.append(f"{name}: every case passed, but the program ended with exit code {exit_code}")
    return totals


def of_pytest(name: str, report: Path, exit_code: int) -> Totals:
    """Cases of a pytest run from its JUnit report."""
    totals = Totals(name)
    if not report.is_file():
        totals.failures.append(f"{name}: pytest ended with exit code {exit_code} without a report")
        return totals
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("skipped") is not None:
            totals.skipped += 1
        else:
            failed = case.find("failure") is not None or case.find("error") is not None
            totals.count(f"{case.get('classname')}.{case.get('name')}", not failed)
    if exit_code != 0 and not totals.failures:
        totals.failures.append(f"{name}: no case failed, but pytest ended with exit code {exit_code}")
    return totals


def last_line(all_totals: list[Totals]) -> str:
    passed = sum(totals.passed for totals in all_totals)
    failed = sum(totals.failed for totals in all_totals)
    skipped = sum(totals.skipped for totals in all_totals)
    return f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")
