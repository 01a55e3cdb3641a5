"""Names for what is made of operations."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ferrule.server.openapi.operations import Operation

LONGEST = 64
"""Some hosts refuse names that are longer."""


class Names:
    """Gives each operation a name of its own."""

    def __init__(self, chosen: Mapping[str, str]) -> None:
        self._chosen = chosen
        self._taken: set[str] = set()

    def name(self, operation: Operation) -> str:
        """Give the name that was chosen for an operation, else its id, else one made of its method and path."""
        name = self._chosen.get(operation.identity) or self._chosen.get(operation.place) or _made(operation)
        unique, number = name, 2
        while unique in self._taken:
            ending = f"_{number}"
            unique, number = name[: LONGEST - len(ending)] + ending, number + 1
        self._taken.add(unique)
        return unique


def _made(operation: Operation) -> str:
    said = operation.identity or f"{operation.method.lower()}_{operation.path}"
    # FastAPI makes an id of the function's name, the path and the method: what it adds says nothing new.
    added = re.sub(r"\W", "_", operation.path) + f"_{operation.method.lower()}"
    if said.endswith(added) and len(said) > len(added):
        said = said.removesuffix(added)
    name = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9_.\-]", "_", said)).strip("_")
    return name[:LONGEST].rstrip("_") or "operation"
