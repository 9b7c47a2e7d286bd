"""tesser takes a PyTorch training step, captures it as a program, and trains it in C++.

    import tesser

    def step() -> tesser.Step: ...

    tesser.capture(step(), "name.tesser")

``tesser.interpret`` runs a program in PyTorch, operator by operator: the reference the C++ runtime is compared with.
"""

from __future__ import annotations

__version__ = "0.1.0"

try:
    from tesser.capture import Captured, capture
    from tesser.capture_error import CaptureError
    from tesser.interpreter import Interpretation, Interpreter, interpret
    from tesser.program import Program, ProgramError
    from tesser.step import Step
except ModuleNotFoundError as error:
    # tesser.client needs nothing but Python; all else says what is missing when it is asked for.
    if error.name not in ("torch", "numpy", "safetensors"):
        raise
    _missing = error.name

    def __getattr__(name: str) -> object:
        if name in __all__:
            raise ImportError(f"tesser.{name} needs {_missing}, which is not installed")
        raise AttributeError(f"module 'tesser' has no attribute '{name}'")


__all__ = [
    "CaptureError",
    "Captured",
    "Interpretation",
    "Interpreter",
    "Program",
    "ProgramError",
    "Step",
    "capture",
    "interpret",
]
