"""The way back of a request that came in at another process."""

from __future__ import annotations

import pytest

from ferrule.transports.http.cluster.frames import BEGIN, CUT, FINISH, LONGEST_CONTENT, PART, WHOLE, read_answer
from ferrule.transports.http.cluster.remote_responder import RemoteResponder


class Sender:
    """Notes what is said."""

    backlog = 7

    def __init__(self) -> None:
        self.said: list[tuple[int, int, bytes]] = []

    def send(self, kind: int, exchange: int, content: bytes = b"") -> None:
        self.said.append((kind, exchange, content))

    async def wait_writable(self) -> None: ...


def test_an_answer_is_said_in_parts_and_then_nothing_more() -> None:
    sender = Sender()
    ended: list[str] = []
    responder = RemoteResponder(sender, 5, lambda: ended.append("ended"))
    responder.watch(lambda: ended.append("lost"))
    responder.begin(200, b"head", b"filler")
    with pytest.raises(RuntimeError, match="begun already"):
        responder.reply(200, b"")
    responder.write(b"one")
    assert responder.backlog == 7
    assert not ended
    responder.finish()
    responder.write(b"late")
    responder.lose()
    (first, *others) = sender.said
    assert first[:2] == (BEGIN, 5)
    answer = read_answer(first[2])
    assert (answer.status, answer.head, answer.body) == (200, b"head", b"filler")
    assert others == [(PART, 5, b"one"), (FINISH, 5, b"")]
    assert ended == ["ended"]


def test_whoever_answers_hears_once_that_the_one_that_asked_is_gone() -> None:
    sender = Sender()
    told: list[str] = []
    responder = RemoteResponder(sender, 5, lambda: told.append("ended"))
    responder.watch(lambda: told.append("lost"))
    responder.lose()
    responder.lose()
    responder.write(b"late")
    assert responder.gone
    assert (told, sender.said) == (["lost"], [])


@pytest.mark.parametrize("how", ["whole", "a part"])
def test_what_is_too_long_to_be_said_is_cut(how: str) -> None:
    """The process that asked would give up what it waits for, of all others too."""
    sender = Sender()
    responder = RemoteResponder(sender, 5, lambda: None)
    content = bytes(LONGEST_CONTENT)
    if how == "whole":
        responder.reply(200, b"", content)
    else:
        responder.write(content + b"1")
    assert sender.said == [(CUT, 5, b"")]
    RemoteResponder(sender, 6, lambda: None).write(content)
    RemoteResponder(sender, 7, lambda: None).reply(200, b"")
    assert [(kind, number) for kind, number, _ in sender.said[1:]] == [(PART, 6), (WHOLE, 7)]
