"""How a program is started whose imports are looked at: where `make coverage` counts its lines, it imports more."""

from __future__ import annotations

import os


def uncounted_environment() -> dict[str, str]:
    """Return the environment without what makes coverage begin in every Python that starts."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
