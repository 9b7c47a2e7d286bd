"""python -m tests.python.random_networks [--nets N] [--seed S] [--step-files DIR] [--report FILE]"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.python.random_networks import campaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="random_networks")
    parser.add_argument("--nets", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--step-files", type=Path, default=Path("build/random_networks"))
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()

    def tell(line: str) -> None:
        print(line, flush=True)

    done = campaign.run(options.nets, options.seed, options.step_files, tell, options.processes)
    print(done.report(), flush=True)
    if options.report:
        counts = {"passed": done.right + done.refused, "known": done.known.total(), "failures": done.wrong}
        options.report.write_text(json.dumps(counts), encoding="utf-8")
    return 1 if done.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
