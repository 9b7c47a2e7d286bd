"""The one error of capture, and how the user's own source line is found."""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType, TracebackType

import torch

_LIBRARY_ROOTS = (
    os.path.dirname(os.path.abspath(torch.__file__)) + os.sep,
    os.path.dirname(os.path.abspath(__file__)) + os.sep,
    sysconfig.get_paths()["stdlib"] + os.sep,
)


class CaptureError(Exception):
    """A step that cannot become a program: what, where in the user's source, and what to do instead."""

    def __init__(self, message: str, source: str | None = None) -> None:
        super().__init__(f"{source}: {message}" if source else message)
        self.message = message
        self.source = source


class SourceLines:
    """Finds the user's line that is running: the innermost frame outside PyTorch, the standard library and tesser.

    `root` is the folder that file names are written relative to; other files are relative to the working directory or
    the entry of sys.path that holds them. Frames outside those of the file `driver`, which calls the user's functions,
    are not of the step.
    """

    def __init__(self, root: Path | None, driver: str) -> None:
        bases = [root, Path.cwd()] if root is not None else [Path.cwd()]
        self._bases = [str(base.resolve()) for base in bases] + sorted(
            {os.path.abspath(entry) for entry in sys.path if entry}, key=len, reverse=True
        )
        self._driver = driver
        self._names: dict[CodeType, str | None] = {}

    def running(self, frame: FrameType | None) -> str | None:
        """``file:line`` of the innermost user frame from `frame` outwards."""
        names = self._names
        while frame is not None:
            code = frame.f_code
            if code.co_filename == self._driver:
                return None
            name = names[code] if code in names else self._name(code)
            if name is not None:
                return f"{name}:{frame.f_lineno}"
            frame = frame.f_back
        return None

    def of_place(self, filename: str, line: int) -> str | None:
        name = self._relative(filename)
        return f"{name}:{line}" if name is not None else None

    def of_function(self, function: object) -> str | None:
        """``file:line`` where a function of the user's begins."""
        code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
        return None if code is None else self.of_place(code.co_filename, code.co_firstlineno)

    def of_traceback(self, traceback: TracebackType | None) -> str | None:
        """``file:line`` of the innermost user frame an exception passed through."""
        found = None
        while traceback is not None:
            name = self._name(traceback.tb_frame.f_code)
            if name is not None:
                found = f"{name}:{traceback.tb_lineno}"
            traceback = traceback.tb_next
        return found

    def _name(self, code: CodeType) -> str | None:
        if code not in self._names:
            self._names[code] = self._relative(code.co_filename)
        return self._names[code]

    def _relative(self, filename: str) -> str | None:
        if filename.startswith("<"):
            return None
        path = os.path.abspath(filename)
        if path.startswith(_LIBRARY_ROOTS) and "site-packages" not in path.removeprefix(_LIBRARY_ROOTS[2]):
            return None
        if path.startswith(_LIBRARY_ROOTS[:2]):
            return None
        for base in self._bases:
            if path.startswith(base.rstrip(os.sep) + os.sep):
                return os.path.relpath(path, base)
        return path
