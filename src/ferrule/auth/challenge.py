"""`WWW-Authenticate`: what a server asks for, written by servers and read by clients (RFC 9110 §11.6.1).

Rule 1: nothing a request said is ever written into a challenge, and no value can end its header early.
Rule 2: what cannot be read ends the reading; the challenges before it count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from ferrule.errors import SetupError

HEADER = "WWW-Authenticate"
LONGEST = 16 * 1024
"""Characters of a header that are read."""
MOST_CHALLENGES = 16
MOST_PARAMETERS = 32
"""Of one challenge."""

_WORD = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
"""A token of RFC 9110 §5.6.2."""
_SEPARATORS = re.compile(r"[ \t,]*")
_NAME = re.compile(_WORD)
_PARAMETER = re.compile(rf'({_WORD})[ \t]*=[ \t]*(?:({_WORD})|"((?:[^"\\]|\\.)*)")(?=[ \t]*(?:,|$))')
_TOKEN68 = re.compile(r"([A-Za-z0-9\-._~+/]+=*)(?=[ \t]*(?:,|$))")
_QUOTED_PAIR = re.compile(r"\\(.)")


class Challenge(Struct, frozen=True):
    """One way to be let in: a scheme, and what the server says of it."""

    scheme: str
    """As it is written; compare it in any case: `challenge.is_scheme("bearer")`."""
    parameters: Mapping[str, str] = {}
    """By names in lower case."""
    token: str = ""
    """What stands there in the place of parameters, as with `Negotiate`."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.scheme):
            raise SetupError(f"{self.scheme!r} is not a scheme of authentication")
        for name, value in self.parameters.items():
            if not _NAME.fullmatch(name):
                raise SetupError(f"{name!r} cannot be the name of a parameter of a challenge")
            if any(not (" " <= character <= "~") for character in value):
                raise SetupError(f"the parameter {name} of a challenge has characters no header may have")

    def is_scheme(self, name: str) -> bool:
        """Return whether it is of a scheme."""
        return self.scheme.lower() == name.lower()

    @property
    def error(self) -> str:
        """Why the request was refused, such as `invalid_token`; empty where that is not said."""
        return self.parameters.get("error", "")

    @property
    def scopes(self) -> list[str]:
        """The scopes it asks for."""
        return self.parameters.get("scope", "").split()

    def __str__(self) -> str:
        if self.token:
            return f"{self.scheme} {self.token}"
        written = []
        for name, value in self.parameters.items():
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            written.append(f'{name}="{escaped}"')
        return f"{self.scheme} {', '.join(written)}".rstrip()


def write_challenges(challenges: Iterable[Challenge]) -> str:
    """Return challenges as the value of one header."""
    return ", ".join(map(str, challenges))


def read_challenges(header: str) -> list[Challenge]:
    """Return the challenges of a header; several headers are one, joined with commas."""
    found: list[Challenge] = []
    if len(header) > LONGEST:
        return found
    position = 0
    while len(found) < MOST_CHALLENGES:
        position = _skip(header, position)
        scheme = _NAME.match(header, position)
        if scheme is None:
            break
        position = scheme.end()
        if position < len(header) and header[position] not in " \t,":
            break
        token, parameters, position = _read_details(header, position)
        try:
            found.append(Challenge(scheme[0], parameters, token))
        except SetupError:
            break
    return found


def _skip(header: str, position: int) -> int:
    blank = _SEPARATORS.match(header, position)
    assert blank is not None
    return blank.end()


def _read_details(header: str, position: int) -> tuple[str, dict[str, str], int]:
    """Read what follows a scheme: a token, or parameters up to where the next scheme begins."""
    parameters: dict[str, str] = {}
    comma = header.find(",", position)
    start = _skip(header, position)
    if comma < 0 or start <= comma:
        # A comma right after the scheme ends its challenge, unless parameters follow.
        token = _TOKEN68.match(header, start)
        if token is not None and _PARAMETER.match(header, start) is None:
            return token[1], parameters, token.end()
    for _ in range(MOST_PARAMETERS):
        start = _skip(header, position)
        found = _PARAMETER.match(header, start)
        if found is None:
            break
        value = found[2]
        if value is None:
            value = _QUOTED_PAIR.sub(r"\1", found[3])
        # A name that comes twice counts once (RFC 9110 §11.2).
        parameters.setdefault(found[1].lower(), value)
        position = found.end()
    return "", parameters, position
