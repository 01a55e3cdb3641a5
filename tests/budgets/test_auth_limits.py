"""The bounds of the rooms of authorization are all on docs/guides/limits.md."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import ferrule.auth

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "limits.md"
BOUND = re.compile(r"^(?:\w+, )?((?:MAX_|MOST|LONGEST|LARGEST)\w*) = ", re.MULTILINE)
"""A line that sets one, alone or as the second of two."""
NOT_OF_PEERS = {
    "ferrule.auth.client.sealed_store.LARGEST": "what we seal ourselves",
    "ferrule.auth.client.sealed_store.MOST_TRIES": "programs of the same owner, at one document",
    "ferrule.auth.proxy.keys.LARGEST_SEALED": "what we seal ourselves",
    "ferrule.auth.proxy.pages.MAX_SCOPES": "scopes that the server itself names",
    "ferrule.auth.server.token_verifier.LONGEST_NOTED": "what a line of the log shows",
    "ferrule.auth.server.token_verifier.MOST_NOTED": "what a line of the log shows",
}


def bounds() -> set[str]:
    """Return the numbers whose names begin as those of bounds do; the server for development serves nobody else."""
    found = set()
    for module in pkgutil.walk_packages(ferrule.auth.__path__, "ferrule.auth."):
        if ".devserver" in module.name:
            continue
        loaded = importlib.import_module(module.name)
        for name in BOUND.findall(Path(str(loaded.__file__)).read_text(encoding="utf-8")):
            if isinstance(getattr(loaded, name), int | float):
                found.add(f"{module.name}.{name}")
    return found


def test_every_bound_of_authorization_is_on_the_page():
    page = PAGE.read_text(encoding="utf-8")
    assert len(bounds()) > 50
    assert {each for each in bounds() - NOT_OF_PEERS.keys() if f"`{each}`" not in page} == set()


def test_what_is_left_out_is_still_there():
    assert NOT_OF_PEERS.keys() - bounds() == set()
