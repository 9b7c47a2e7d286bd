"""libtesser_hub.so, the hub's client and a hub within a process (src/hub/c_interface.h)."""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int, c_int64, c_void_p
from pathlib import Path

from tesser.hub.error import HubError, HubInputError

NAME = "libtesser_hub.so"
# What a hub's functions give back for wrong input.
WRONG_INPUT = 2

# By function: what it gives back (int: 0, or the failure's kind) and what it takes.
FUNCTIONS = {
    "tesser_hub_error": (c_char_p, []),
    "tesser_hub_join": (c_int, [c_char_p, POINTER(c_void_p)]),
    "tesser_hub_close": (None, [c_void_p]),
    "tesser_hub_abandon": (None, [c_void_p]),
    "tesser_hub_gradient": (c_void_p, [c_void_p, c_int64]),
    "tesser_hub_weights": (c_void_p, [c_void_p, c_int64]),
    "tesser_hub_set_initial": (None, [c_void_p, c_int64, c_void_p, c_int64]),
    "tesser_hub_set_initial_state": (c_int, [c_void_p, c_int64, c_int, c_void_p, c_int64]),
    "tesser_hub_set_initial_updates": (None, [c_void_p, c_int64, c_int64]),
    "tesser_hub_start": (c_int, [c_void_p, POINTER(c_int64), POINTER(c_int)]),
    "tesser_hub_push": (c_int, [c_void_p, c_int64]),
    "tesser_hub_push_rows": (c_int, [c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int64]),
    "tesser_hub_push_none": (c_int, [c_void_p, c_int64]),
    "tesser_hub_withdraw": (c_int, [c_void_p, POINTER(c_int64), c_int64]),
    "tesser_hub_commit": (c_int, [c_void_p, POINTER(c_double), c_int64]),
    "tesser_hub_wait_for": (c_int, [c_void_p, c_int64, c_int64, POINTER(c_int)]),
    "tesser_hub_read_state": (c_int, [c_void_p, c_int64, c_int, c_void_p, c_int64]),
    "tesser_hub_read_updates": (c_int, [c_void_p, c_int64, POINTER(c_int64)]),
    "tesser_hub_state": (c_char_p, [c_void_p, c_int64]),
    "tesser_hub_leave": (c_int, [c_void_p]),
    "tesser_hub_paths": (c_char_p, [c_void_p]),
    "tesser_hub_serve": (c_int, [c_char_p, POINTER(c_void_p)]),
    "tesser_hub_url": (c_char_p, [c_void_p]),
    "tesser_hub_end": (None, [c_void_p]),
}


def find() -> Path:
    """The library's file: TESSER_HUB_LIBRARY, or the release build's."""
    named = os.environ.get("TESSER_HUB_LIBRARY")
    path = Path(named) if named else Path(__file__).resolve().parents[3] / "build" / "release" / "lib" / NAME
    if not path.is_file():
        raise HubInputError(
            f"there is no {path}\nWhat to do: build it with ./x build, or name the file in TESSER_HUB_LIBRARY"
        )
    return path


@functools.cache
def load() -> ctypes.CDLL:
    path = find()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise HubInputError(f"{path} cannot be loaded: {error}\nWhat to do: build it again with ./x build") from None
    for name, (result, arguments) in FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise HubInputError(
                f"{path} has no {name}, so it is of another version of tesser\nWhat to do: ./x build"
            ) from None
        function.restype = result
        function.argtypes = arguments
    return library


def failure(code: int) -> HubError:
    """The last failure on this thread."""
    message = load().tesser_hub_error().decode()
    return HubInputError(message) if code == WRONG_INPUT else HubError(message)


def check(code: int) -> None:
    if code != 0:
        raise failure(code)


__all__ = ["byref", "c_double", "c_float", "c_int", "c_int64", "c_void_p", "check", "failure", "find", "load"]
