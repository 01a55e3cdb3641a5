"""Answers of earlier rounds are found by key and content of the question, never by the order of asking."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from ferrule.errors import InvalidParams
from ferrule.protocol.needs import Answers, Journal, JournalEntry, Need, Question

SEAT = Question("elicitation/create", {"message": "Which seat?"})
MEAL = Question("elicitation/create", {"message": "Which meal?"})
ROOTS = Question("roots/list", {})

TEXT = st.text(max_size=6)
QUESTIONS = st.builds(
    Question, st.sampled_from(["elicitation/create", "roots/list"]), st.dictionaries(TEXT, TEXT | st.integers()), TEXT
)


def next_round(answers: Answers, responses: dict[str, bytes]) -> Answers:
    """What the next round starts from: the journal as it travels in the sealed state, and the new responses."""
    journal = msgspec.json.decode(msgspec.json.encode(answers.journal), type=Journal)
    return Answers(journal, {key: Raw(value) for key, value in responses.items()})


class TestQuestions:
    def test_a_digest_follows_the_content_and_nothing_else(self) -> None:
        same = Question("elicitation/create", {"message": "Which seat?"}, key="other")
        assert SEAT.digest == same.digest
        assert SEAT.digest != MEAL.digest
        assert SEAT.digest != Question("sampling/createMessage", SEAT.params).digest

    def test_the_order_of_members_does_not_change_a_digest(self) -> None:
        one = Question("m", {"a": 1, "b": {"c": 2, "d": [3]}})
        other = Question("m", {"b": {"d": [3], "c": 2}, "a": 1})
        assert one.digest == other.digest

    def test_a_need_is_no_plain_exception(self) -> None:
        """MRTR-1: `except Exception` in a handler does not swallow it."""
        assert not issubclass(Need, Exception)
        assert "seat, meal" in str(Need([("seat", SEAT), ("meal", MEAL)]))


class TestPlaces:
    def test_a_key_is_the_place_and_without_one_the_content_names_it(self) -> None:
        answers = Answers()
        assert answers.key_for(msgspec.structs.replace(SEAT, key="seat")) == "seat"
        place = answers.key_for(SEAT)
        assert place.startswith("elicitation-")
        assert Answers().key_for(SEAT) == place

    def test_the_same_question_asked_again_is_counted(self) -> None:
        answers = Answers()
        first, second, third = (answers.key_for(SEAT) for _ in range(3))
        assert (second, third) == (f"{first}#2", f"{first}#3")

    def test_steps_and_questions_do_not_share_places(self) -> None:
        answers = Answers()
        assert answers.key_for_step("pay") != answers.key_for(msgspec.structs.replace(SEAT, key="pay"))

    @given(st.lists(QUESTIONS, max_size=8))
    def test_all_places_of_one_round_differ_and_every_round_gives_the_same(self, questions: list[Question]) -> None:
        """MRTR-4: the keys of the input requests are stable over the rounds."""
        answers, again = Answers(), Answers()
        places = [answers.key_for(question) for question in questions]
        assert [again.key_for(question) for question in questions] == places
        keyless = [place for place, question in zip(places, questions, strict=True) if not question.key]
        assert len(set(keyless)) == len(keyless)


class TestRounds:
    def test_an_answer_is_found_in_the_round_that_brought_it_and_ever_after(self) -> None:
        """MRTR-8 MRTR-9: what is answered is not asked again; what is not, is."""
        first = Answers()
        seat, meal = first.key_for(SEAT), first.key_for(MEAL)
        assert first.find(seat, SEAT) is None
        second = next_round(first, {seat: b'{"row":3}'})
        assert bytes(second.find(second.key_for(SEAT), SEAT)) == b'{"row":3}'
        assert second.find(second.key_for(MEAL), MEAL) is None
        third = next_round(second, {meal: b'"soup"'})
        assert bytes(third.find(third.key_for(MEAL), MEAL)) == b'"soup"'
        assert bytes(third.find(third.key_for(SEAT), SEAT)) == b'{"row":3}'

    def test_the_order_of_asking_does_not_matter(self) -> None:
        first = Answers()
        seat, meal = first.key_for(SEAT), first.key_for(MEAL)
        second = next_round(first, {seat: b"1", meal: b"2"})
        assert bytes(second.find(second.key_for(MEAL), MEAL)) == b"2"
        assert bytes(second.find(second.key_for(SEAT), SEAT)) == b"1"

    def test_responses_under_unknown_keys_are_ignored(self) -> None:
        """MRTR-9: a key nobody asked for changes nothing and is not remembered."""
        answers = next_round(Answers(), {"stranger": b"1"})
        assert answers.find(answers.key_for(SEAT), SEAT) is None
        assert next_round(answers, {}).journal.answers == {}

    def test_a_response_to_an_answered_question_does_not_change_the_answer(self) -> None:
        """MRTR-6: the sealed answer counts."""
        first = Answers()
        seat = first.key_for(SEAT)
        second = next_round(first, {seat: b"1"})
        second.find(second.key_for(SEAT), SEAT)
        third = next_round(second, {seat: b"2"})
        assert bytes(third.find(third.key_for(SEAT), SEAT)) == b"1"

    def test_a_question_that_changed_under_its_key_is_refused(self) -> None:
        answers = Answers(Journal(answers={"seat": JournalEntry("other digest", Raw(b"1"))}, steps={}))
        with pytest.raises(InvalidParams, match="seat"):
            answers.find("seat", SEAT)

    def test_a_step_is_remembered_over_the_rounds(self) -> None:
        """MRTR-8 STL-10: what was done once is in the state the client brings back."""
        first = Answers()
        place = first.key_for_step("pay")
        assert first.find_step(place) is None
        first.keep_step(place, Raw(b'{"receipt":7}'))
        second = next_round(first, {})
        assert bytes(second.find_step(second.key_for_step("pay"))) == b'{"receipt":7}'
        assert second.find_step(second.key_for_step("pay")) is None

    def test_two_new_answers_share_nothing(self) -> None:
        one, other = Answers(), Answers()
        one.keep_step("s", Raw(b"1"))
        one.journal.answers["a"] = JournalEntry("d", Raw(b"1"))
        assert other.journal == Journal(answers={}, steps={})

    @given(st.dictionaries(TEXT, st.tuples(TEXT, st.integers() | TEXT), max_size=5))
    def test_a_journal_survives_its_journey(self, entries: dict[str, tuple[str, Any]]) -> None:
        answers = {
            key: JournalEntry(digest, Raw(msgspec.json.encode(value))) for key, (digest, value) in entries.items()
        }
        travelled = next_round(Answers(Journal(answers=answers, steps=answers)), {}).journal
        for kept in (travelled.answers, travelled.steps):
            assert {key: (e.digest, msgspec.json.decode(e.value)) for key, e in kept.items()} == entries


def test_a_question_is_known_again_by_a_later_release() -> None:
    """States under way hold its key and its fingerprint."""
    question = Question("elicitation/create", {"message": "?", "a": [1, {"b": 2}]})
    assert question.digest == "a95eaf30533fc714da"
    assert Answers().key_for(question) == "elicitation-a95eaf3053"
