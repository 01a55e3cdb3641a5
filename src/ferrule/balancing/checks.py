"""Bounds of options, checked when settings are made."""

from __future__ import annotations

import math

from ferrule.errors import SetupError


def require_number(name: str, value: float, *, least: float = 0.0, most: float = math.inf) -> None:
    """Raise SetupError unless an option is a number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SetupError(f"{name} must be a number, not {value!r}")
    if not least <= value <= most:
        raise SetupError(f"{name} must be {_range(least, most)}, not {value!r}")


def require_whole(name: str, value: int, *, least: int = 1, most: float = math.inf) -> None:
    """Raise SetupError unless an option is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise SetupError(f"{name} must be a whole number, not {value!r}")
    require_number(name, value, least=least, most=most)


def require_time(name: str, value: float) -> None:
    """Raise SetupError unless an option is a number of seconds greater than 0."""
    require_number(name, value)
    if not 0 < value < math.inf:
        raise SetupError(f"{name} must be more than 0 seconds, not {value!r}")


def _range(least: float, most: float) -> str:
    if most == math.inf:
        return f"at least {least:g}"
    return f"from {least:g} to {most:g}"
