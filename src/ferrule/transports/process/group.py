"""The processes a child leads: itself, and what it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

NEW_GROUP = 0
"""The creation flags of a child; elsewhere than on Windows its session makes the group."""


class ProcessGroup:
    """The group of one child, reached by signals."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._pid = process.pid
        self._gone = False

    def ask_to_end(self) -> bool:
        """Ask everyone in the group to end. Return whether there is anyone."""
        return self._signal(signal.SIGTERM)

    def kill(self) -> bool:
        """End everyone in the group at once. Return whether there was anyone."""
        if sys.platform == "win32":
            return False
        return self._signal(signal.SIGKILL)

    def remains(self) -> bool:
        """Return whether anyone is left in the group."""
        return self._signal(0)

    def _signal(self, number: int) -> bool:
        if self._gone or sys.platform == "win32":
            return False
        try:
            os.killpg(self._pid, number)
        except ProcessLookupError:
            # From now on the number may belong to strangers.
            self._gone = True
            return False
        except PermissionError:
            return False
        return True
