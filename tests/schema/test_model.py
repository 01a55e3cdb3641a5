"""Metadata of requests: what is read of it, what is remembered, and how much there may be."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from ferrule.budgets.bounds import MAX_ID_LENGTH, MAX_META_SIZE
from ferrule.budgets.weight import full_weight
from ferrule.schema import model
from ferrule.schema.model import HEAVIEST_META, MOST_METAS, is_remembered, read_meta


def meta(**members: object) -> Raw:
    return Raw(msgspec.json.encode(members))


def test_the_same_words_are_read_once():
    assert read_meta(meta(progressToken="same")) is read_meta(meta(progressToken="same"))


def test_what_is_remembered_is_bounded_in_number_and_size():
    for number in range(3 * MOST_METAS):
        read_meta(meta(progressToken=number))
        assert len(model._metas) <= MOST_METAS
    heavy = meta(x=[[]] * 100)
    assert len(bytes(heavy)) < 1000
    assert not is_remembered(heavy)
    before = dict(model._metas)
    read_meta(heavy)
    assert model._metas == before
    assert sum(full_weight(words) for words in model._metas) <= MOST_METAS * HEAVIEST_META


def test_a_token_over_its_bound_is_refused_where_it_stands():
    assert read_meta(meta(progressToken="t" * MAX_ID_LENGTH)) is not None
    with pytest.raises(msgspec.ValidationError, match=r"\$\._meta\.progressToken"):
        read_meta(meta(progressToken="t" * (MAX_ID_LENGTH + 1)))


def test_metadata_over_its_bound_is_refused_unread():
    with pytest.raises(msgspec.ValidationError, match=r"at most 65536 bytes - at `\$\._meta`"):
        read_meta(Raw(b"{" + b"x" * MAX_META_SIZE))
