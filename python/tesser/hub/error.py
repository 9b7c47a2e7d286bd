"""What goes wrong at a hub, in one line that says what to do."""

from __future__ import annotations


class HubError(RuntimeError):
    """The job has failed, or its hub is lost; the message names who. Final: the job does not go on."""


class HubInputError(HubError, ValueError):
    """What was asked for cannot be."""
