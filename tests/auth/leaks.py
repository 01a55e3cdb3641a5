"""Sees whether a secret of a run is in any text of the run: logs, errors, metrics, traces, receipts, answers.

Whatever `ferrule.auth` draws at random, signs or is given as a token is a secret: codes, states, verifiers, access and
refresh tokens, tickets. A text holds one if it has the first 16 characters of it in it.
"""

from __future__ import annotations

import functools
import importlib
import logging
import pkgutil
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from forgery import MADE

import ferrule.auth
from ferrule.auth.devserver.tokens import Tokens
from ferrule.auth.proxy import grants
from ferrule.auth.proxy import keys as proxy_keys
from ferrule.auth.proxy.access_tokens import AccessTokens
from ferrule.auth.server.static_tokens import StaticTokens
from ferrule.errors import FerruleError

HEAD = 16
"""So many characters of a secret are a leak."""
FEWEST_BYTES = 24
"""What is drawn from fewer is an id and no secret."""
MOST_TEXTS = 200_000
LOGGERS = ("ferrule", "asyncio")

WORD = re.compile(rf"[A-Za-z0-9_\-]{{{HEAD},}}")


class Watch(logging.Handler):
    """Notes the secrets of a run, and its texts with their places."""

    def __init__(self) -> None:
        super().__init__(level=1)
        self.setFormatter(logging.Formatter("%(message)s"))
        self._heads: dict[str, str] = {}
        """What each secret is, by its head."""
        self._texts: list[tuple[str, str]] = []
        self.looks = False
        """Whether a test runs whose texts are looked at: other tests share this process, and nobody looks at theirs."""

    def note_secret(self, secret: object, what: str) -> None:
        """Note a secret. Of a signed token the signature is what nobody may read; its header and claims are known."""
        if isinstance(secret, str):
            part = secret.rpartition(".")[2] if secret.count(".") == 2 else secret
            if len(part) >= HEAD:
                self._heads[part[:HEAD]] = what

    def note_text(self, place: str, text: str) -> None:
        """Note a text that others may read."""
        if self.looks:
            assert len(self._texts) < MOST_TEXTS, "one test has more texts than can be looked at"
            self._texts.append((place, text))

    def emit(self, record: logging.LogRecord) -> None:
        """Note a log record with its traceback."""
        if record.name.partition(".")[0] in LOGGERS:
            self.note_text(f"log {record.name}, {record.pathname}:{record.lineno}", self.format(record))

    def found(self) -> list[str]:
        """Return where secrets were in the texts since the last look."""
        texts = self._texts
        self._texts = []
        leaks = []
        for place, text in texts:
            for word in WORD.findall(text):
                for at in range(len(word) - HEAD + 1):
                    what = self._heads.get(word[at : at + HEAD])
                    if what is not None:
                        leaks.append(f"{place}: {what}: {text[:300]}")
        return leaks


def _returns_secrets(watch: Watch, function: Callable[..., Any], what: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def noting(*given: Any, **named: Any) -> Any:
        made = function(*given, **named)
        watch.note_secret(made, what)
        return made

    return noting


def _modules() -> list[Any]:
    """Return every module of authorization, imported."""
    names = [each.name for each in pkgutil.walk_packages(ferrule.auth.__path__, "ferrule.auth.")]
    return [importlib.import_module(name) for name in names if not name.endswith("__main__")]


_watches: list[Watch] = []
"""The one that watches now: several folders of tests may want one in the same run."""


@contextmanager
def watching() -> Iterator[Watch]:
    """Watch everything in this process while the block runs."""
    if _watches:
        yield _watches[0]
        return
    watch = Watch()
    _watches.append(watch)
    undo: list[Callable[[], None]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        before = owner.__dict__.get(name)
        setattr(owner, name, value)
        undo.append(lambda: delattr(owner, name) if before is None else setattr(owner, name, before))

    drawn = secrets.token_urlsafe

    def token_urlsafe(nbytes: int | None = None) -> str:
        made = drawn(nbytes)
        who = str(sys._getframe(1).f_globals.get("__name__"))
        if who.startswith("ferrule.auth.") and nbytes is not None and nbytes >= FEWEST_BYTES:
            watch.note_secret(made, f"a secret of {who}")
        return made

    def new_error(kind: type[FerruleError], *given: object, **named: object) -> FerruleError:
        frame = sys._getframe(1)
        if str(frame.f_globals.get("__name__")).startswith("ferrule."):
            place = f"{kind.__name__} of {frame.f_code.co_filename}:{frame.f_lineno}"
            watch.note_text(place, " ".join(map(str, (*given, *named.values()))))
        return Exception.__new__(kind, *given)

    put(secrets, "token_urlsafe", token_urlsafe)
    put(FerruleError, "__new__", new_error)
    put(Tokens, "sign", _returns_secrets(watch, Tokens.sign, "a token of the development server"))
    put(grants.Grants, "_token", _returns_secrets(watch, grants.Grants._token, "a refresh token of the proxy"))
    put(AccessTokens, "issue", _returns_secrets(watch, AccessTokens.issue, "a token of the proxy"))
    random_text = proxy_keys.random_text
    for module in _modules():
        # The id of a grant is in its tokens, and opens nothing without their signature.
        if module.__dict__.get("random_text") is random_text and module is not grants:
            put(module, "random_text", _returns_secrets(watch, random_text, "a secret of the proxy"))
    made = StaticTokens.__init__

    def new_static_tokens(self: StaticTokens, tokens: Any, **options: Any) -> None:
        for token in tokens:
            watch.note_secret(token, "a static token")
        made(self, tokens, **options)

    put(StaticTokens, "__init__", new_static_tokens)
    for name in LOGGERS:
        logging.getLogger(name).addHandler(watch)
    try:
        yield watch
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(watch)
        for each in reversed(undo):
            each()
        _watches.remove(watch)


@pytest.fixture(scope="module")
def secrets_of_the_run() -> Iterator[Watch]:
    """All secrets of a file of tests, and all texts in which none may be; other tests see classes as they are."""
    with watching() as watch:
        yield watch


@pytest.fixture(autouse=True)
def no_text_holds_a_secret(secrets_of_the_run: Watch) -> Iterator[None]:
    """Look at every log record, whatever its level, and at every error of ours."""
    logger = logging.getLogger("ferrule")
    before = logger.level
    logger.setLevel(1)
    secrets_of_the_run.looks = True
    yield
    secrets_of_the_run.looks = False
    logger.setLevel(before)
    while MADE:
        secrets_of_the_run.note_secret(MADE.pop(), "a token that was written by hand")
    assert secrets_of_the_run.found() == []
