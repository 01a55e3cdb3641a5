"""What a channel does unless it says otherwise."""

from __future__ import annotations

from contextvars import copy_context
from typing import Any
from unittest.mock import AsyncMock, Mock

from msgspec import structs

from ferrule.wire.channel import NO_TRAITS, REPEATABLE, ChannelDefaults, ForwardingChannel, Handling, Traits
from ferrule.wire.messages import Success


def test_a_channel_is_not_congested_and_has_no_context_unless_it_says_so() -> None:
    channel = ChannelDefaults()
    assert channel.congested is False
    assert channel.context is None


def test_a_message_is_sent_once_and_mirrored_nowhere_unless_told() -> None:
    usual = Handling()
    assert (usual.repeatable, usual.mirrored) == (False, {})
    assert REPEATABLE.repeatable is True


def test_a_channel_has_no_trait_but_those_it_names() -> None:
    assert set(structs.asdict(NO_TRAITS).values()) == {False}
    for name in structs.asdict(NO_TRAITS):
        named = structs.asdict(Traits(**{name: True}))
        assert [each for each, has in named.items() if has] == [name]


def test_a_channel_that_forwards_is_like_the_one_behind_it() -> None:
    behind: Any = Mock()
    behind.traits = Traits(closes_on_garbage=True)
    behind.context = copy_context()
    behind.congested = True
    behind.bytes_in = 7
    behind.bytes_out = 9
    behind.short_session = "abc"
    behind.wait_writable = AsyncMock()
    channel = ForwardingChannel(behind)
    for name in ("traits", "context", "congested", "bytes_in", "bytes_out", "short_session", "wait_writable"):
        assert getattr(channel, name) is getattr(behind, name)
    message = Success(1, {})
    channel.send(message)
    channel.send_with(message, REPEATABLE)
    channel.send_broadcast("broadcast", b"tag")  # type: ignore[arg-type]
    channel.close("enough")
    channel.add_headers({"a": "b"})
    channel.agreed("2025-11-25")
    channel.withdrawn()
    channel.release()
    channel.stand()
    channel.hear_gaps(print)
    names = ("send", "send_with", "send_broadcast", "close", "add_headers", "agreed", "withdrawn", "release", "stand")
    assert [call[0] for call in behind.method_calls] == [*names, "hear_gaps"]
    assert [call.args for call in behind.method_calls[:6]] == [
        (message,),
        (message, REPEATABLE),
        ("broadcast", b"tag"),
        ("enough",),
        ({"a": "b"},),
        ("2025-11-25",),
    ]
