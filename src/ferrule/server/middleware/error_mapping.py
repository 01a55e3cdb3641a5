"""`ErrorMapping`: what an application's own exceptions mean to a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ferrule.errors import Internal, SetupError, ToolError
from ferrule.protocol.call import Call
from ferrule.server.middleware.hooks import Middleware

Meaning = str | type[Exception] | Callable[[Exception], Exception]


class ErrorMapping(Middleware):
    """Turns exceptions into errors a client may read, instead of a masked one with a reference number.

    The nearest class counts. A text is told as it is; a class is raised with the exception's own words; a function is
    given the exception and gives another.
    """

    def __init__(self, meanings: Mapping[type[Exception], Meaning]) -> None:
        for kind, meaning in meanings.items():
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise SetupError(f"ErrorMapping: {kind!r} is not a class of exceptions")
            if not (isinstance(meaning, str) or callable(meaning)):
                raise SetupError(f"ErrorMapping: {meaning!r} must be a str, an exception class or a function")
        self._meanings = dict(meanings)

    def on_error(self, call: Call, error: Exception) -> Exception | None:
        """Return the error that says what an exception means."""
        meaning = next((self._meanings[kind] for kind in type(error).__mro__ if kind in self._meanings), None)
        if meaning is None:
            return None
        if isinstance(meaning, str):
            return ToolError(meaning) if call.method == "tools/call" else Internal(meaning)
        return meaning(str(error)) if isinstance(meaning, type) else meaning(error)
