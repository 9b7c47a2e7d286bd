"""The whole sweep: tries every operator, prints counts and what is wrong, and with --write makes the table anew.

.venv/bin/python tests/python/layout_sweep [--write] [--sources images,models] [--operators NAME,...]
    [--calls N] [--seconds N] [--log FILE]
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2] / "python"), str(HERE.parents[2])]

from tests.python.layout_sweep import sweep  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table anew")
    parser.add_argument("--sources", default=",".join(sweep.SOURCES), help="where calls come from")
    parser.add_argument("--calls", type=int, default=1000, help="try this many calls of each operator at most")
    parser.add_argument("--operators", help="only these, with commas between")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop trying after this long")
    parser.add_argument("--no-lift", dest="lift", action="store_false", help="no calls of more dimensions than samples")
    parser.add_argument("--missing", action="store_true", help="only operators that the table does not have")
    parser.add_argument("--samples", type=int, default=30, help="of each entry of PyTorch's operator tests")
    parser.add_argument("--log", type=Path, help="write every mixture that is not right there")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    operators = options.operators.split(",") if options.operators else None
    return sweep.run(
        write=options.write,
        sources=options.sources.split(","),
        operators=operators,
        seconds=options.seconds,
        calls_of_each=options.calls,
        log=options.log,
        lift=options.lift,
        missing=options.missing,
        samples=options.samples,
    )


if __name__ == "__main__":
    sys.exit(main())
