"""``python -m tesser``: the commands that need PyTorch's Python; the others are in the C++ command ``tesser``."""

from __future__ import annotations

import sys

COMMANDS = ("capture",)
USAGE = """\
usage: python -m tesser capture step.py [-o OUT] [options] [-- key=value ...]

  capture    write a PyTorch training step as a program

python -m tesser COMMAND --help tells more."""


def main(arguments: list[str]) -> int:
    if arguments and arguments[0] == "capture":
        from tesser import capture_command

        return capture_command.main(arguments[1:])
    if arguments and arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    if arguments:
        print(f"tesser: no command {arguments[0]!r} here; there is: {', '.join(COMMANDS)}", file=sys.stderr)
    print(USAGE, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
