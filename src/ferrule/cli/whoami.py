"""`ferrule whoami [URL]`: the logins of this user, without asking anybody."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import msgspec

from ferrule.cli.login import add_server, logins, say
from ferrule.errors import SetupError

if TYPE_CHECKING:
    from ferrule.cli.main import CommandParser


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule whoami`."""
    add_server(parser, needed=False)


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Show the logins."""
    found = logins(options)
    if options.json:
        say(msgspec.json.encode(found).decode())
        return
    if not found:
        where = options.url or "any server"
        raise SetupError(f"there is no login for {where}: run `ferrule login {options.url or 'URL'}`")
    for each in found:
        scopes = " ".join(each["scopes"]) or "no scopes named"
        user = f" ({each['user']})" if each["user"] else ""
        ends = each["expires"] or "revoked"
        say(f"{each['server']}{user}  {each['issuer']}  {scopes}  until {ends}  {each['state']}")
