"""Completion: suggestions for an argument while it is typed."""

from __future__ import annotations

from msgspec import Struct

from ferrule.schema.model import Model, Name, Params, Result, Uri, Value


class PromptReference(Struct, tag_field="type", tag="ref/prompt", omit_defaults=True):
    """Completes an argument of this prompt."""

    name: Name
    title: str | None = None


class ResourceReference(Struct, tag_field="type", tag="ref/resource", omit_defaults=True):
    """Completes a variable of this template."""

    uri: Uri


Reference = PromptReference | ResourceReference


class CompletionArgument(Model, kw_only=True):
    """The argument and what has been typed of it."""

    name: Name
    value: str


class CompletionContext(Value, frozen=True, kw_only=True):
    """Arguments that are settled already."""

    arguments: dict[Name, str] = {}


NOTHING_SETTLED = CompletionContext()


class CompleteParams(Params, kw_only=True):
    """What to complete."""

    ref: Reference
    argument: CompletionArgument
    context: CompletionContext | None = NOTHING_SETTLED

    def __post_init__(self) -> None:
        if self.context is None:
            self.context = NOTHING_SETTLED  # how some clients write that nothing is


class Completion(Model, kw_only=True):
    """The suggestions, best first, at most a hundred."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result, kw_only=True):
    """Suggestions for an argument."""

    completion: Completion
