"""./x test: every check of the project, counted in cases, ending in one line of totals."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from tools import build, environment, lint, rdma, totals
from tools.console import ROOT, Failure, Usage, environment_with, error, heading, output_of, succeeds
from tools.totals import Totals

# One test program may take so long before it counts as hanging.
PROGRAM_SECONDS = 300
PYTEST_SECONDS = 1200
FAULT_SCHEDULES = 100
FAULT_SECONDS = 1800
# Schedules of each folder of tests/python that has random faults of processes, and what they are called.
PROCESS_FAULTS = (
    ("distributed", "random faults of workers", 50),
    ("hub", "random faults of a hub's workers", 50),
    ("platform", "random faults of a job's guardian, learners, nodes and servers, Slurm's among them", 200),
)
EACH_SEED = ("-vv",)  # a line for each test, which is named after its seed
PLAN_SECONDS = 7200
RANDOM_NETWORKS = 10_000
OPERATOR_SECONDS = 7200
# Folders of tests/python that `--operators` runs whole, and what they are called.
OPERATOR_SWEEPS = (("operator_sweep", "samples of operators"), ("layout_sweep", "memory layouts of operators"))
FUZZ_SECONDS = 6
FUZZ_AT_ONCE = 2
# Folders of src/ whose tests are system tests under tests/python.
TESTED_BY_PYTHON = {"cli"}
# Folders of tests/python that run one after the other, beside the other groups and all folders in none; each takes
# about as long. Tests of the platform mostly wait.
SIDE_BY_SIDE = ({"distributed", "models", "transport"}, {"hub", "page", "platform", "random_networks"})
# Folders of src/ that have a library, and a test program, for each folder in them.
HAS_PARTS = {"platform"}
# Test programs that mostly wait for others' clocks, and so run beside the other ones.
MOSTLY_WAITS = {"platform_engine_slurm"}
# Folders whose tests need ATen, which is not built with sanitizers.
NEEDS_ATEN = {"executor"}
# What the usual run tests with sanitizers: folders that read what others wrote (requests, manifests, logs) or count
# elements by hand. Fuzz targets run the readers of programs with them anyway; `--sanitize` takes all folders.
SANITIZED = {
    "base",
    "control",
    "kernels",
    "platform_job",
    "platform_learner",
    "platform_scheduler",
    "platform_store",
}

SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}


def test(filter_text: str, fuzz_seconds: int | None, sanitize: bool) -> int:
    """Runs the suites one after the other, whatever fails; returns the exit code."""
    if fuzz_seconds is not None and fuzz_seconds < 0:
        raise Usage("--fuzz-seconds takes a number of seconds, 0 or more")
    environment.setup()
    install_slurm()
    install_for("the page", "debian-packages-browser.txt")
    install_for("completion in zsh and fish", "debian-packages-shells.txt")
    whole = not filter_text
    suites: list[tuple[str, Callable[[], Totals]]] = []
    if whole:
        suites.append(("lint", lint.check))
    suites.append(("C++ tests", lambda: cpp_tests("release", filter_text)))
    suites.append(("Python tests", lambda: python_tests(filter_text)))
    if whole or sanitize:
        suites.append(
            (
                "C++ tests with address and undefined-behaviour sanitizers",
                lambda: cpp_tests("asan-ubsan", filter_text, None if sanitize else SANITIZED),
            )
        )
    if sanitize:
        suites.append(("C++ tests with the thread sanitizer", lambda: cpp_tests("tsan", filter_text)))
    seconds = FUZZ_SECONDS if fuzz_seconds is None else fuzz_seconds
    if seconds and (whole or fuzz_seconds is not None):
        suites.append(("fuzzing", lambda: fuzz(seconds)))
    results = [run_suite(name, suite, must_have_cases=whole) for name, suite in suites]
    if not whole and not sum(result.cases for result in results):
        raise Usage(f'no test has "{filter_text}" in its name')
    return report(results)


def install_slurm() -> None:
    install_for("the engine slurm", "debian-packages-slurm.txt")


def install_for(what: str, packages: str) -> None:
    """What tests of something need, which are skipped where it cannot be had."""
    try:
        environment.install_listed(ROOT / "tools" / packages)
    except Failure as failure:
        heading(f"tests of {what} will be skipped: {failure}")


def campaigns(
    faults: bool, plans: bool, rdma_too: bool, others: Sequence[tuple[str, Callable[[], Totals]]] = ()
) -> int:
    """The long ones, each of which has a flag of its own; `others` use what stands here."""
    environment.setup()
    results = []
    if faults:
        install_slurm()
        results.append(run_suite("random faults", fault_campaign, must_have_cases=True))
        for folder, name, seeds in PROCESS_FAULTS:
            results.append(run_suite(name, partial(process_fault_campaign, folder, seeds), must_have_cases=True))
    if plans:
        results.append(run_suite("lowered programs", plan_campaign, must_have_cases=True))
    if rdma_too:
        results.append(run_suite("transport over verbs", rdma.rdma_tests, must_have_cases=True))
    results += [run_suite(name, suite, must_have_cases=True) for name, suite in others]
    return report(results)


def page_pictures(directory: str) -> int:
    """The tests of the page, which leave pictures of its views in a directory."""
    environment.setup()
    install_for("the page", "debian-packages-browser.txt")
    build.build("release")
    variables = {"TESSER_SCREENSHOTS": str(Path(directory).resolve())}
    run = partial(run_pytest, "page", [ROOT / "tests" / "python" / "page"], variables, PYTEST_SECONDS)
    return report([run_suite("the page", run, must_have_cases=True)])


def fault_campaign() -> Totals:
    build.build("release", ["transport_test"])
    reports = build.directory("release") / "reports"
    reports.mkdir(exist_ok=True)
    program = {"name": "faults", "command": [build.directory("release") / "bin" / "transport_test"]}
    schedules = {"TESSER_FAULT_SCHEDULES": str(FAULT_SCHEDULES)}
    return run_google_test(program, reports, "*Faults*:*LinkDown*", "release", schedules, FAULT_SECONDS)


def process_fault_campaign(folder: str, seeds: int) -> Totals:
    tests = ROOT / "tests" / "python" / folder / "test_faults.py"
    build.build("release")
    variables = {"TESSER_FAULT_SEEDS": str(seeds)}
    return run_pytest(f"{folder}-faults", [tests, *EACH_SEED], variables, FAULT_SECONDS)


def plan_campaign() -> Totals:
    """In one process by the reference interpreter, and a dozen models in processes."""
    tests = [
        ROOT / "tests" / "python" / folder
        for folder in ("plan/test_lowered.py", "plan/test_expand.py", "distributed/test_equality.py")
    ]
    build.build("release")
    return run_pytest("plans", tests, {"TESSER_ALL_PLANS": "1"}, PLAN_SECONDS)


def network_campaign(nets: int, seed: int) -> Totals:
    """Random networks, each counted; the step files of those that fail are under build/random_networks."""
    build.build("release")
    report = build.directory("release") / "reports" / "random_networks.json"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    command = [environment.PYTHON, "-m", "tests.python.random_networks", "--nets", str(nets), "--seed", str(seed)]
    command += ["--step-files", ROOT / "build" / "random_networks", "--report", report]
    variables = {
        "TESSER_BINARY": str(build.tesser()),
        "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}",
        "OMP_NUM_THREADS": "1",
    }
    succeeds(command, variables)
    if not report.is_file():
        return Totals("random networks", failures=["random networks: ended without a report"])
    counts = json.loads(report.read_text(encoding="utf-8"))
    return Totals("random networks", counts["passed"], counts["known"], counts["failures"])


def operator_campaigns(update_refusals: bool) -> list[tuple[str, Callable[[], Totals]]]:
    variables = {"TESSER_ALL_OPERATORS": "1"} | ({"TESSER_UPDATE_REFUSALS": "1"} if update_refusals else {})

    def run(folder: Path) -> Totals:
        build.build("release")
        return run_pytest(folder.name, [folder, "-s"], variables, OPERATOR_SECONDS)

    folders = [(ROOT / "tests" / "python" / folder, name) for folder, name in OPERATOR_SWEEPS]
    return [(name, partial(run, folder)) for folder, name in folders if folder.is_dir()]


def run_suite(name: str, suite: Callable[[], Totals], must_have_cases: bool) -> Totals:
    """A suite that cannot even start (say, it does not build) counts as one failure."""
    heading(name)
    start = time.monotonic()
    try:
        result = suite()
    except Failure as failure:
        error(str(failure))
        result = Totals(name, failures=[f"{name}: did not run"])
    result.suite = name
    if must_have_cases and not result.cases:
        result.failures.append(f"{name}: there is no test")
    result.seconds = time.monotonic() - start
    return result


def report(results: list[Totals]) -> int:
    heading("totals")
    width = max(len(result.suite) for result in results)
    for result in results:
        line = f"  {result.suite:{width}}  {result.passed:5} passed  {result.failed:3} failed"
        print(line + (f"  {result.skipped:3} skipped" if result.skipped else " " * 13) + f"  {result.seconds:6.1f} s")
    for result in results:
        for failure in result.failures:
            print(f"  failed: {failure}")
    print(totals.last_line(results), flush=True)
    return 1 if any(result.failed for result in results) else 0


def cpp_tests(preset: str, filter_text: str, folders: Collection[str] | None = None) -> Totals:
    """Builds a preset, or what these folders need of it, and runs its GoogleTest programs. A filter that names a
    program runs all of it.
    """
    build.build(preset, None if folders is None else [f"{folder}_test" for folder in sorted(folders)])
    result = Totals(preset)
    reports = build.directory(preset) / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    programs = [program for program in registered_tests(preset) if folders is None or program["name"] in folders]
    expected = expected_programs(preset) if folders is None else set(folders)
    for missing in sorted(expected - {program["name"] for program in programs}):
        result.failures.append(f"{missing}: src/{missing} has no test program in preset {preset}")

    def run_program(program: dict) -> Totals:
        pattern = "*" if filter_text in program["name"] else f"*{filter_text}*"
        return run_google_test(program, reports, pattern, preset)

    with ThreadPoolExecutor(max_workers=1) as pool:
        waiting = [pool.submit(run_program, program) for program in programs if program["name"] in MOSTLY_WAITS]
        for program in programs:
            if program["name"] not in MOSTLY_WAITS:
                result.add(run_program(program))
        for each in waiting:
            result.add(each.result())
    return result


def registered_tests(preset: str) -> list[dict]:
    listing = output_of(["ctest", "--test-dir", build.directory(preset), "--show-only=json-v1"])
    if listing is None:
        raise Failure(
            f"ctest cannot list the tests of preset {preset}.\nWhat to do: rm -r build/{preset}, then ./x test again"
        )
    return json.loads(listing)["tests"]


def expected_programs(preset: str) -> set[str]:
    """Every folder of src/ with sources has a test program of its name; nobody can lose one by forgetting to build
    it.
    """
    folders = set()
    for path in (ROOT / "src").glob("*/**/*.cc"):
        parts = path.parent.relative_to(ROOT / "src").parts
        folders.add("_".join(parts[:2]) if parts[0] in HAS_PARTS else parts[0])
    return folders - TESTED_BY_PYTHON - (set() if preset in ("release", "debug") else NEEDS_ATEN)


def run_google_test(
    program: dict,
    reports: Path,
    pattern: str,
    preset: str,
    more_variables: Mapping[str, str] | None = None,
    seconds: int | None = None,
) -> Totals:
    """Runs one test program; one that takes longer than `seconds` (PROGRAM_SECONDS) counts as hanging."""
    name = program["name"]
    if not program.get("command"):
        return Totals(name, failures=[f"{name}: its program was not built"])
    properties = {item["name"]: item["value"] for item in program.get("properties", [])}
    output = reports / f"{name}.json"
    variables = dict(entry.split("=", 1) for entry in properties.get("ENVIRONMENT", []))
    variables |= {"GTEST_OUTPUT": f"json:{output}", "GTEST_FILTER": pattern, "GTEST_BRIEF": "1"}
    variables |= more_variables or {}
    if preset not in ("release", "debug"):
        variables |= SANITIZER_OPTIONS
    sys.stdout.flush()
    try:
        exit_code = subprocess.run(
            program["command"],
            cwd=properties.get("WORKING_DIRECTORY", ROOT),
            env=environment_with(variables),
            timeout=PROGRAM_SECONDS if seconds is None else seconds,
        ).returncode
    except subprocess.TimeoutExpired:
        exit_code = None
    return totals.of_google_test(name, output, exit_code)


def python_tests(filter_text: str) -> Totals:
    """Several pytest processes at a time, since most tests keep one processor busy or wait."""
    build.build("release")
    tests = ROOT / "tests" / "python"
    folders = sorted(path for path in tests.iterdir() if path.is_dir() and any(path.glob("test_*.py")))
    chosen = ["-k", filter_text] if filter_text else []

    groups = [[folder for folder in folders if folder.name in names] for names in SIDE_BY_SIDE]
    groups.append([folder for folder in folders if not any(folder in group for group in groups)])
    reports = build.directory("release") / "reports"
    reports.mkdir(exist_ok=True)

    def run_group(number: int) -> Totals:
        log = reports / f"pytest-{number}.log" if number else None
        return run_pytest(f"pytest-{number}", [*groups[number], *chosen], {"OMP_NUM_THREADS": "1"}, PYTEST_SECONDS, log)

    with ThreadPoolExecutor() as pool:
        others = [pool.submit(run_group, number) for number in range(1, len(groups))]
        result = run_group(0)
        for other in others:
            result.add(other.result())
    for number in range(1, len(groups)):
        print((reports / f"pytest-{number}.log").read_text(encoding="utf-8", errors="replace"), flush=True)
    return result


def run_pytest(
    name: str, arguments: list[object], variables: dict[str, str], seconds: int, log: Path | None = None
) -> Totals:
    """Of what the release preset has built. What it prints goes to `log` where there is one."""
    if not build.tesser().is_file():
        raise Failure("the build made no build/release/bin/tesser, which the Python tests run")
    junit = ROOT / "build" / "release" / "reports" / f"{name}.xml"
    junit.unlink(missing_ok=True)
    command = [environment.PYTHON, "-m", "pytest", "--quiet", f"--junit-xml={junit}", "--durations=5", *arguments]
    sys.stdout.flush()
    variables = {"TESSER_BINARY": str(build.tesser()), "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"} | variables
    try:
        with open(log, "wb") if log else nullcontext() as output:
            exit_code = subprocess.run(
                [str(part) for part in command],
                cwd=ROOT,
                env=environment_with(variables),
                stdout=output,
                stderr=subprocess.STDOUT if output else None,
                timeout=seconds,
            ).returncode
    except subprocess.TimeoutExpired:
        return Totals(name, failures=[f"{name}: still running after {seconds} s"])
    nothing_selected = 5
    if "-k" in arguments and exit_code == nothing_selected:
        exit_code = 0
    return totals.of_pytest(name, junit, exit_code)


def fuzz(seconds: int) -> Totals:
    """Runs each libFuzzer target; what it finds is kept under build/fuzz/artifacts, what it learns under
    build/fuzz/corpus.
    """
    sources = sorted((ROOT / "tests" / "fuzz").glob("*_fuzzer.cc"))
    if not sources:
        return Totals("fuzz", failures=["fuzz: tests/fuzz has no NAME_fuzzer.cc"])
    build.build("fuzz", [source.stem for source in sources])
    result = Totals("fuzz")
    with ThreadPoolExecutor(max_workers=FUZZ_AT_ONCE) as pool:
        passed = pool.map(partial(fuzz_target, seconds=seconds), sources)
        for source, (case, good) in zip(sources, passed, strict=True):
            if case:
                result.count(case, good)
            else:
                result.failures.append(f"{source.stem}: its program was not built")
    return result


def fuzz_target(source: Path, seconds: int) -> tuple[str, bool]:
    """The target's name in the totals, and whether it found nothing; no name when it was not built."""
    directory = build.directory("fuzz")
    target = directory / "bin" / source.stem
    if not target.is_file():
        return "", False
    corpus = directory / "corpus" / source.stem
    artifacts = directory / "artifacts" / source.stem
    seeds = ROOT / "tests" / "fuzz" / "corpus" / source.stem.removesuffix("_fuzzer")
    corpus.mkdir(parents=True, exist_ok=True)
    artifacts.mkdir(parents=True, exist_ok=True)
    limits = [
        f"-max_total_time={seconds}",
        "-timeout=20",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    command = [target, *limits, f"-artifact_prefix={artifacts}/", corpus, *([seeds] if seeds.is_dir() else [])]
    return f"{source.stem} ({artifacts} has the input)", succeeds(command, SANITIZER_OPTIONS)
