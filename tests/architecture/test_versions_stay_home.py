"""A protocol version is named in the two eras and nowhere else, not even in a docstring.

A page of the specification is cited with its version.
"""

from __future__ import annotations

import re

from source_tree import modules

DATE = re.compile(r"20\d\d-\d\d-\d\d")
CITATION = re.compile(r"MCP 20\d\d-\d\d-\d\d\s+[a-z]+/[a-z/-]+")
"""A page of the specification, such as `MCP 2025-11-25 basic/transports`: it says where a rule stands."""
HOMES = {"protocol/handshake.py", "protocol/stateless.py"}
OTHER_DATES = {"cli/inspect.py"}
"""Where a date is that of another document: the schema of the registry of servers."""


def test_versions_are_named_in_the_two_eras_only() -> None:
    strays = [
        f"{module.place}:{number}: {line.strip()}"
        for module in modules()
        if module.place not in HOMES | OTHER_DATES
        for number, line in enumerate(uncited(module.text).splitlines(), start=1)
        if DATE.search(line)
    ]
    assert strays == []


def uncited(text: str) -> str:
    """Return a text without the citations of the specification, with all its lines."""
    return CITATION.sub(lambda found: "\n" * found[0].count("\n"), text)


def test_a_citation_names_a_page() -> None:
    assert not DATE.search(uncited("RFC 9112 §3, MCP 2025-11-25 basic/transports, Security Warning"))
    assert not DATE.search(uncited("MCP 2026-07-28\n    transports/streamable-http"))
    for text in ("MCP 2025-11-25", 'version = "2025-11-25"', "since MCP 2025-11-25 clients do", "2025-11-25 basic/x"):
        assert DATE.search(uncited(text))


def test_the_two_eras_do_name_them() -> None:
    named = {module.place for module in modules() if DATE.search(module.text)}
    assert named >= HOMES
