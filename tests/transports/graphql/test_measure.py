"""What a document may ask for, judged before it is run."""

from __future__ import annotations

import time

import pytest
from graphql import GraphQLError, parse

from ferrule.transports.graphql.measure import MAX_REPEATS, Measure, Measurement, check_document
from ferrule.transports.graphql.operation import Payload, Refused, prepare
from ferrule.transports.graphql.settings import GraphqlSettings


def measured(text: str) -> Measure:
    """Return the measure of a document."""
    return Measurement(parse(text)).total()


def test_a_field_counts_once_and_inside_a_list_as_often_as_it_has_entries() -> None:
    assert measured("{ tools { nextCursor } }") == Measure(2, 2, 0)
    assert measured("{ tools { items { name title } } }") == Measure(3, 1 + 1 + 100 * 2, 0)
    assert measured("{ prompts { items { arguments { name } } } }") == Measure(4, 1 + 1 + 100 * (1 + 10), 0)


def test_aliases_are_counted_also_those_of_fragments_that_are_spread_twice() -> None:
    text = "{ a: tools { ...F } tools { ...F } } fragment F on Tools { b: nextCursor }"
    assert measured(text) == Measure(2, 4, 3)


def test_fragments_and_inline_fragments_count_as_what_they_hold() -> None:
    text = "{ tools { ...F } } fragment F on Tools { ... on Tools { items { ...G } } } fragment G on Tool { name }"
    assert measured(text) == measured("{ tools { items { name } } }")


def test_fragments_that_double_at_each_step_are_measured_in_no_time() -> None:
    chain = ["fragment F0 on Tools { nextCursor }"]
    for step in range(1, 60):
        chain.append(f"fragment F{step} on Tools {{ ...F{step - 1} ...F{step - 1} }}")
    began = time.process_time()
    with pytest.raises(GraphQLError, match="it costs"):
        check_document(parse("{ tools { ...F59 } } " + " ".join(chain)), GraphqlSettings())
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        ("{ tools { items { name } } }", {"max_depth": 2}, "nested 3 deep, the limit is 2"),
        ("{ a: tools { nextCursor } }", {"max_aliases": 1, "max_cost": 1}, "it costs 2, the limit is 1"),
        ("{ a: __typename b: __typename }", {"max_aliases": 1}, "2 aliases, the limit is 1"),
        ("{ " + "__typename " * (MAX_REPEATS + 1) + "}", {}, "'__typename' is selected more than"),
        ("{ tools { items { name } } }", {"max_document_length": 10}, "too long: the limit is 10 characters"),
        ("{ tools { items { name } } }", {"max_tokens": 5}, "more than 5"),
        ("{ __typename }" + "#\n" * 6, {"max_tokens": 5}, "more than 5"),
        ("{ tools { ...F } } fragment F on Tools { ...F }", {}, "Cannot spread fragment 'F' within itself"),
        ("{ missing }", {}, "Cannot query field 'missing'"),
        ("{ tools", {}, "Syntax Error"),
        ("query A { __typename } query B { __typename }", {}, "operationName"),
    ],
)
def test_what_is_too_much_or_wrong_is_refused_with_the_reason(text: str, options: dict[str, int], why: str) -> None:
    with pytest.raises(Refused) as refused:
        prepare(Payload(text), GraphqlSettings(**options))
    assert why in refused.value.errors[0]["message"]
    assert refused.value.errors[0]["extensions"]["code"]


def test_the_worst_document_within_the_limits_takes_little_time() -> None:
    """Fields of one name are compared in pairs, so how often one may be selected is bounded."""
    settings = GraphqlSettings()
    names = ["description", "_meta", "messages { role }", "__typename"]
    fields = " ".join(f"{name} " * (MAX_REPEATS // 2) for name in names)
    text = f'{{ getPrompt(name: "x") {{ {fields} ...F }} }} fragment F on PromptResult {{ {fields} }}'
    began = time.process_time()
    prepare(Payload(text), settings)
    assert time.process_time() - began < 1


def test_deep_nesting_is_refused_and_never_overflows_the_stack() -> None:
    text = "{ a " * 400 + "}" * 400
    with pytest.raises(Refused, match="deep"):
        prepare(Payload(text), GraphqlSettings(max_tokens=100_000))
