"""Data parallel training through a parameter hub (docs/hub_pytorch.md).

    model, optimizer = tesser.hub.wrap(model, optimizer, hub="http://HOST:PORT")

``Client`` and ``Server`` are the same for programs of their own.
"""

from __future__ import annotations

from tesser.hub.client import Client, Server
from tesser.hub.error import HubError, HubInputError
from tesser.hub.optimizer import HubOptimizer
from tesser.hub.settings import Key, Numbers, ParameterGroup, Settings
from tesser.hub.wrap import wrap

__all__ = [
    "Client",
    "HubError",
    "HubInputError",
    "HubOptimizer",
    "Key",
    "Numbers",
    "ParameterGroup",
    "Server",
    "Settings",
    "wrap",
]
