"""`ferrule login URL`, `logout URL`, `whoami [URL]`: the logins of this user, which clients with `OAuth()` use.

Rule: what is shown of a login is where it is good and until when, never a token or a secret.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec

from ferrule.auth.client.browser import can_paste, open_browser
from ferrule.auth.client.device_flow import DeviceCode
from ferrule.auth.client.oauth import OAuth, server_url
from ferrule.auth.client.session import SERVERS, Login
from ferrule.auth.client.store import open_store
from ferrule.cli.main import UNREACHABLE, Ended
from ferrule.client.client import Client
from ferrule.errors import ConnectFailed, InitializeTimedOut, LinkLost, SetupError, TimedOut
from ferrule.supervision.logs import escaped
from ferrule.supervision.signals import run_coroutine

if TYPE_CHECKING:
    from ferrule.cli.main import CommandParser


# -- login


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule login`."""
    add_server(parser)
    parser.add_argument("--no-browser", action="store_true", help="show the page's URL, and open nothing")
    parser.add_argument("--device", action="store_true", help="log in on another device, with a code shown here")
    parser.add_argument("--scope", action="append", metavar="SCOPE", help="ask for this scope, and others so given")
    parser.add_argument("--client-id", metavar="ID", help="who this client is, where it is registered already")
    parser.add_argument(
        "--client-secret-variable", metavar="NAME", help="the environment variable with the secret of that client"
    )
    parser.add_argument("--issuer", metavar="URL", help="the only authorization server to use")
    parser.add_argument("--callback-port", type=int, metavar="PORT", help="the port the browser is sent back to")
    parser.add_argument("--redirect-uri", metavar="URI", help="the URL it is sent back to, where that is a certain one")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS", help="how long to wait")


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Log in, unless one is."""
    try:
        run_coroutine(lambda: _log_in(options))
    except (ConnectFailed, InitializeTimedOut, LinkLost, TimedOut) as reason:
        raise Ended(str(reason), UNREACHABLE) from reason


async def _log_in(options: argparse.Namespace) -> None:
    server_url(options.url)  # refuses what is no URL
    shown = False

    async def show(url: str) -> None:
        nonlocal shown
        shown = True
        opened = not options.no_browser and await open_browser(url)
        say("Log in with your browser, which was opened at:" if opened else "Open this page to log in:")
        say(f"\n  {url}\n")
        if can_paste():
            say("If the last page does not come back here, paste its URL:")

    def show_code(begun: DeviceCode) -> None:
        nonlocal shown
        shown = True
        say(f"Open this page on any device, and enter the code {begun.code}:\n\n  {begun.url}\n")
        if begun.whole_url:
            say(f"or open this one:\n\n  {begun.whole_url}\n")

    auth = OAuth(
        device=show_code if options.device else False,
        client_id=options.client_id,
        client_secret=_secret(options.client_secret_variable),
        scopes=options.scope,
        issuer=options.issuer,
        callback_port=options.callback_port,
        redirect_uri=options.redirect_uri,
        login_timeout=options.timeout,
        storage=options.storage,
        user=options.user,
        open_browser=show,
        paste=True,
    )
    async with Client(options.url, auth=auth):
        pass
    login = auth.session(options.url).login
    if login is None:
        say(f"{options.url} lets in anybody: there is nothing to log in to")
    elif shown:
        say(f"logged in to {_told(options.url, login)}")
    else:
        say(f"logged in already to {_told(options.url, login)}; `ferrule logout {options.url}` ends that")


def _secret(variable: str | None) -> str | None:
    if variable is None:
        return None
    if variable not in os.environ:
        raise SetupError(f"there is no environment variable {variable}")
    return os.environ[variable]


# -- what the three commands share


def add_server(parser: CommandParser, *, needed: bool = True) -> None:
    """Add the arguments that say which login is meant."""
    parser.add_argument("url", metavar="URL", nargs=None if needed else "?", help="the server")
    parser.add_argument("--storage", default="auto", metavar="WHERE", help="auto, keyring, file, or a path (auto)")
    parser.add_argument("--user", default="", metavar="NAME", help="keeps the logins of several people apart")


def logins(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return what may be shown of the stored logins, of one server or of all."""
    store = open_store(options.storage)
    found = []
    for entry, pointer in sorted((store.read(SERVERS) or {}).items()):
        url, _, user = entry.partition(" ")
        if options.url is not None and (url != server_url(options.url) or user != options.user):
            continue
        document = store.read(str(pointer.get("token", "")))
        if document is not None:
            found.append({"server": url, "user": user, **described(msgspec.convert(document, Login))})
    return found


def described(login: Login) -> dict[str, Any]:
    """Return what may be shown of a login."""
    state = "ok"
    if login.needs_login:
        state = "needs a login"
    elif login.token.is_dead(time.time()):
        state = "is renewed at its next use" if login.token.refresh else "has ended"
    ends = None
    if login.token.expires is not None:
        ends = datetime.datetime.fromtimestamp(login.token.expires, datetime.UTC).isoformat(timespec="seconds")
    return {
        "issuer": login.issuer,
        "resource": login.resource,
        "scopes": list(login.token.scopes),
        "bound": bool(login.key),
        "expires": ends,
        "renewable": bool(login.token.refresh),
        "state": state,
    }


def _told(url: str, login: Login) -> str:
    scopes = f" with {' '.join(login.token.scopes)}" if login.token.scopes else ""
    return f"{url} by {login.issuer}{scopes}"


def say(text: str) -> None:
    """Print a line; what a server wrote obeys nobody's terminal."""
    sys.stdout.write("\n".join(map(escaped, text.split("\n"))) + "\n")
    sys.stdout.flush()
