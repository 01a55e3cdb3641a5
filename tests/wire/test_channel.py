"""What a channel does unless it says otherwise."""

from __future__ import annotations

from msgspec import structs

from ferrule.wire.channel import NO_TRAITS, REPEATABLE, ChannelDefaults, Handling, Traits


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
