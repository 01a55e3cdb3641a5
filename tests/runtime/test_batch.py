"""The channel of a batch: it sends one array when the last answer is there, and nothing before."""

from __future__ import annotations

from typing import Any

import pytest

from ferrule.budgets.bounds import MAX_BATCH_ANSWER
from ferrule.errors import EncodeError
from ferrule.runtime.batch import BatchPart, Replies
from ferrule.wire.channel import ChannelDefaults
from ferrule.wire.codec import encode
from ferrule.wire.messages import ErrorObject, Failure, Notification, Request, Success


class Below(ChannelDefaults):
    """The channel the array goes out on."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.reason: str | None = None
        self.waited = 0

    def send(self, message: Any) -> None:
        self.sent.append(message)

    async def wait_writable(self) -> None:
        self.waited += 1

    def close(self, reason: str = "") -> None:
        self.reason = reason


@pytest.fixture
def below() -> Below:
    return Below()


def test_answers_are_kept_until_all_are_there(below: Below) -> None:
    """RPC-11 BATC-02: one array, in the order in which they came."""
    batch = BatchPart(Replies(below, 3))
    answers = [Success(2, {}), Failure(1, ErrorObject(1, "x")), Success(3, {})]
    for answer in answers[:2]:
        batch.send(answer)
        assert below.sent == []
    batch.send(answers[2])
    assert below.sent == [answers]


def test_what_is_no_answer_goes_out_at_once(below: Below) -> None:
    """Progress and questions do not wait for the results."""
    batch = BatchPart(Replies(below, 1))
    batch.send(Notification("n"))
    batch.send(Request(1, "roots/list"))
    assert below.sent == [Notification("n"), Request(1, "roots/list")]


def test_an_answer_that_will_not_come_is_not_waited_for(below: Below) -> None:
    """CANC-2: before the others or after them."""
    early, late = BatchPart(Replies(below, 2)), BatchPart(Replies(below, 2))
    early.withdrawn()
    early.send(Success(1, {}))
    late.send(Success(2, {}))
    late.withdrawn()
    assert below.sent == [[Success(1, {})], [Success(2, {})]]


def test_a_batch_without_any_answer_sends_nothing(below: Below) -> None:
    """BATC-02 RPC-9: no empty array."""
    batch = BatchPart(Replies(below, 2))
    batch.withdrawn()
    batch.withdrawn()
    assert below.sent == []


def test_an_answer_that_cannot_be_written_is_refused_to_its_own_call(below: Below) -> None:
    """FRM-04: so the call can answer with an error, and the others arrive."""
    batch = BatchPart(Replies(below, 2))
    batch.send(Success(1, {}))
    with pytest.raises(EncodeError):
        batch.send(Success(2, {"x": object()}))
    batch.send(Failure(2, ErrorObject(-32603, "x")))
    assert below.sent == [[Success(1, {}), Failure(2, ErrorObject(-32603, "x"))]]


def test_answers_that_are_too_long_together_go_out_one_by_one(below: Below) -> None:
    """RPC-11: each is answered; an array is allowed, not demanded."""

    def narrow(message: Any) -> None:
        if isinstance(message, list):
            raise EncodeError("the message is too long")
        below.sent.append(message)

    below.send = narrow
    batch = BatchPart(Replies(below, 2))
    batch.send(Success(1, {}))
    batch.send(Success(2, {}))
    assert below.sent == [Success(1, {}), Success(2, {})]


def test_an_answer_that_is_too_long_alone_is_refused_and_the_others_arrive(below: Below) -> None:
    """RPC-11, SIZE-06: every id of the array is answered once."""

    def narrow(message: Any) -> None:
        if message != Success(2, {}) and not isinstance(message, Failure):
            raise EncodeError("the message is too long")
        below.sent.append(message)

    below.send = narrow
    batch = BatchPart(Replies(below, 2))
    batch.send(Success(1, {"much": "x"}))
    batch.send(Success(2, {}))
    refused = Failure(1, ErrorObject(-32603, "The result cannot be written: the message is too long"))
    assert below.sent == [refused, Success(2, {})]


async def test_waiting_and_closing_are_those_of_the_channel_below(below: Below) -> None:
    batch = BatchPart(Replies(below, 1))
    await batch.wait_writable()
    batch.close("done")
    assert (below.waited, below.reason) == (1, "done")


class Narrow(Below):
    """A channel that takes only short messages."""

    def send(self, message: Any) -> None:
        if len(encode(message)) > 200:
            raise EncodeError("too long")
        super().send(message)


def test_an_answer_whose_very_id_is_too_long_keeps_back_no_other() -> None:
    """RPC-11: each is told, the one that cannot be named too."""
    below = Narrow()
    batch = BatchPart(Replies(below, 3))
    for identity in ("i" * 300, "a", "b"):
        batch.send(Success(identity, {}))
    nameless, *others = below.sent
    assert (nameless.id, nameless.error.message) == (None, "The result cannot be written: too long")
    assert others == [Success("a", {}), Success("b", {})]


def test_together_answers_take_so_much_and_the_one_too_many_is_refused_alone(below: Below) -> None:
    batch = BatchPart(Replies(below, 4))
    rest = 1000
    large = MAX_BATCH_ANSWER - rest - len(encode(Success(1, "")))
    room = rest - len(encode(Success(3, "")))
    answers = [Success(1, "x" * large), Success(2, "x" * rest), Success(3, "x" * room), Success(4, "")]
    for answer in answers:
        batch.send(answer)
    (sent,) = below.sent
    assert [type(each) for each in sent] == [Success, Failure, Success, Failure]
    assert sent[1].error.data == {"retryAfter": 1}
    assert [each.id for each in sent] == [1, 2, 3, 4]
