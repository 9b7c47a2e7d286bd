"""Source text of calls and sizes."""

from __future__ import annotations

from typing import Any


def call(function: str, *positional: Any, **keywords: tuple[Any, Any]) -> str:
    """A call; each keyword is given with its default and left out where it has that."""
    words = [literal(value) for value in positional]
    words += [
        f"{name}={literal(value)}"
        for name, (value, default) in keywords.items()
        if value != default and value != [default] * (len(value) if isinstance(value, list) else 0)
    ]
    return f"{function}({', '.join(words)})"


def literal(value: Any) -> str:
    """A list of equal numbers as one number, others as a tuple; text is source already unless it is quoted."""
    if isinstance(value, list):
        return literal(value[0]) if len(set(value)) == 1 else f"({', '.join(map(literal, value))})"
    return value if isinstance(value, str) else repr(value)


def sizes(values: Any) -> str:
    return ", ".join(str(value) for value in values)
