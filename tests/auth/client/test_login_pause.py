"""After a login that failed a person is left alone for a while."""

from __future__ import annotations

import pytest

from ferrule.auth.client.login_pause import PAUSE, LoginPause
from ferrule.auth.client.session import Granted
from ferrule.auth.client.token import ClientIdentity, Token
from ferrule.errors import AuthorizationFailed

GRANTED = Granted(Token("a token"), ClientIdentity("a client", "none"))


class Person:
    """Counts how often they are asked, and declines until they are told to agree."""

    def __init__(self) -> None:
        self.asked = 0
        self.agrees = False

    async def log_in(self) -> Granted:
        self.asked += 1
        if not self.agrees:
            raise AuthorizationFailed("the person declined")
        return GRANTED


async def test_a_person_who_declined_is_not_asked_again_at_once() -> None:
    now = 100.0
    pause = LoginPause(lambda: now)
    person = Person()
    for _ in range(3):
        with pytest.raises(AuthorizationFailed, match="declined"):
            await pause.attempt(person.log_in)
    assert person.asked == 1

    now += PAUSE
    with pytest.raises(AuthorizationFailed, match="declined"):
        await pause.attempt(person.log_in)
    assert person.asked == 2


async def test_after_a_login_that_worked_nobody_has_to_wait() -> None:
    now = 100.0
    pause = LoginPause(lambda: now)
    person = Person()
    with pytest.raises(AuthorizationFailed):
        await pause.attempt(person.log_in)
    now += PAUSE
    person.agrees = True
    assert await pause.attempt(person.log_in) is GRANTED

    person.agrees = False
    with pytest.raises(AuthorizationFailed):
        await pause.attempt(person.log_in)
    assert person.asked == 3
