"""What the tests of this project and of others stand on.

Each name is imported when it is first used: pytest loads the plugin in this folder at every start.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ferrule.testing.client_pair import ERAS, pair
    from ferrule.testing.clock import VirtualClock, run_in_virtual_time
    from ferrule.testing.conversation import Replay, read_conversation, write_conversation
    from ferrule.testing.recorder import Recorded, Recorder

HOMES = {
    "ERAS": "ferrule.testing.client_pair",
    "Recorded": "ferrule.testing.recorder",
    "Recorder": "ferrule.testing.recorder",
    "Replay": "ferrule.testing.conversation",
    "VirtualClock": "ferrule.testing.clock",
    "pair": "ferrule.testing.client_pair",
    "read_conversation": "ferrule.testing.conversation",
    "run_in_virtual_time": "ferrule.testing.clock",
    "write_conversation": "ferrule.testing.conversation",
}

__all__ = [
    "ERAS",
    "Recorded",
    "Recorder",
    "Replay",
    "VirtualClock",
    "pair",
    "read_conversation",
    "run_in_virtual_time",
    "write_conversation",
]


def __getattr__(name: str) -> Any:
    home = HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ferrule.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
