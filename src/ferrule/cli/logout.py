"""`ferrule logout URL`: end a login at its authorization server, where that can be asked, and forget it here."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ferrule.auth.client.oauth import OAuth
from ferrule.cli.login import add_server, say
from ferrule.errors import SetupError
from ferrule.supervision.signals import run_coroutine

if TYPE_CHECKING:
    from ferrule.cli.main import CommandParser


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule logout`."""
    add_server(parser)


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Log out."""
    run_coroutine(lambda: _log_out(options))


async def _log_out(options: argparse.Namespace) -> None:
    session = OAuth(storage=options.storage, user=options.user).session(options.url)
    revoked = await session.revoke()
    if not await session.forget():
        raise SetupError(f"there is no login for {options.url}; `ferrule whoami` shows those there are")
    if revoked:
        say(f"logged out of {options.url}")
    else:
        say(f"the login for {options.url} is forgotten here; its authorization server was not told")
