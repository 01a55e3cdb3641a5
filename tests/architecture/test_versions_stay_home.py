"""A protocol version is named in the two eras and nowhere else, not even in a docstring."""

from __future__ import annotations

import re

from source_tree import modules

DATE = re.compile(r"20\d\d-\d\d-\d\d")
HOMES = {"protocol/handshake.py", "protocol/stateless.py"}


def test_versions_are_named_in_the_two_eras_only() -> None:
    strays = [
        f"{module.place}:{number}: {line.strip()}"
        for module in modules()
        if module.place not in HOMES
        for number, line in enumerate(module.text.splitlines(), start=1)
        if DATE.search(line)
    ]
    assert strays == []


def test_the_two_eras_do_name_them() -> None:
    named = {module.place for module in modules() if DATE.search(module.text)}
    assert named >= HOMES
