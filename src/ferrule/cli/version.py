"""`ferrule version`: what a report of a bug should name."""

from __future__ import annotations

import argparse
import platform
from importlib import metadata
from typing import TYPE_CHECKING

from ferrule.cli.output import output_of
from ferrule.protocol.handshake import REVISIONS as HANDSHAKE
from ferrule.protocol.stateless import REVISIONS as STATELESS

if TYPE_CHECKING:
    from ferrule.cli.main import CommandParser

PACKAGES = (
    *("msgspec", "jsonschema-rs", "cryptography", "httptools", "uvloop"),
    *("h2", "graphql-core", "joserfc", "opentelemetry-api", "pytest"),
)
"""What Ferrule uses, and what its extras add."""


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule version`: it has none."""


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Show the versions of Ferrule, of the protocol, of Python and of the packages it uses."""
    output = output_of(options)
    packages = installed()
    protocol = [*STATELESS, *HANDSHAKE]
    if output.json:
        output.document(
            {
                "ferrule": metadata.version("ferrule"),
                "protocol": protocol,
                "python": platform.python_version(),
                "implementation": platform.python_implementation(),
                "platform": platform.platform(),
                "packages": packages,
            }
        )
        return
    rows = [
        ["ferrule", metadata.version("ferrule")],
        ["protocol", ", ".join(protocol)],
        ["python", f"{platform.python_version()} ({platform.python_implementation()})"],
        ["platform", platform.platform()],
    ]
    for name, version in packages.items():
        rows.append([name, version or "not installed"])
    output.rows(rows)


def installed() -> dict[str, str | None]:
    """Return the version of each package we can use; None for one that is not installed."""
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found
