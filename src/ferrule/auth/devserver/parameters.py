"""The parameters of an OAuth request, and the error it is answered with (RFC 6749 §3.1, §5.2).

Rule: an error never repeats what was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qsl, urlsplit

MAX_FIELDS = 100
MAX_SCOPES = 100
MAX_RESOURCES = 10


class OAuthError(Exception):
    """Why a request is refused, in the words of the RFCs."""

    def __init__(self, error: str, description: str, status: int = 400) -> None:
        super().__init__(description)
        self.error = error
        self.description = description
        self.status = status


class Parameters:
    """The parameters of one request. Only `resource` may stand several times (RFC 8707 §2)."""

    def __init__(self, text: str) -> None:
        self._fields: dict[str, str] = {}
        self.resources: tuple[str, ...] = ()
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS)
        except ValueError:
            raise OAuthError("invalid_request", f"there are more than {MAX_FIELDS} parameters") from None
        for name, value in pairs:
            if name == "resource":
                self.resources += (value,)
            elif name in self._fields:
                raise OAuthError("invalid_request", "a parameter stands twice")
            else:
                self._fields[name] = value

    def get(self, name: str) -> str:
        """Return a parameter, empty where it is absent."""
        return self._fields.get(name, "")

    def require(self, name: str) -> str:
        """Return a parameter of ours that must be there."""
        value = self.get(name)
        if not value:
            raise OAuthError("invalid_request", f"the parameter {name} is missing")
        return value

    def scopes(self) -> tuple[str, ...]:
        """Return the scopes asked for, each once."""
        found = tuple(dict.fromkeys(self.get("scope").split(" ")))
        if found == ("",):
            return ()
        if len(found) > MAX_SCOPES or not all(map(_is_scope, found)):
            raise OAuthError("invalid_scope", "scope must be names with one space between them (RFC 6749 section 3.3)")
        return found

    def checked_resources(self) -> tuple[str, ...]:
        """Return the resources asked for, each an absolute URI without a fragment (RFC 8707 §2)."""
        if len(self.resources) > MAX_RESOURCES or not all(map(_is_resource, self.resources)):
            raise OAuthError("invalid_target", "resource must be an absolute URI without a fragment (RFC 8707)")
        return self.resources


def _is_scope(text: str) -> bool:
    return bool(text) and all("!" <= c <= "~" and c not in '"\\' for c in text)


def _is_resource(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme) and "#" not in text and text.isascii() and text.isprintable()


def within(asked: Sequence[str], granted: Sequence[str]) -> bool:
    """Return whether nothing is asked for beyond what was granted."""
    return set(asked) <= set(granted)
