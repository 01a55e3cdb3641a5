"""What a document asks for, measured before anything of it is validated or run.

Rule: the work is in proportion to the tokens of the document; a fragment is measured once, however often it is spread.
"""

from __future__ import annotations

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLError,
    OperationDefinitionNode,
    SelectionNode,
    SelectionSetNode,
)
from msgspec import Struct

from ferrule.transports.graphql.errors import TOO_COMPLEX
from ferrule.transports.graphql.settings import GraphqlSettings

PAGE_SIZE = 100
"""How many entries a page of tools, resources or prompts is taken to have."""
LIST_SIZE = 10
"""The same for every other list."""
SIZES = {"items": PAGE_SIZE, "contents": LIST_SIZE, "content": LIST_SIZE, "messages": LIST_SIZE, "arguments": LIST_SIZE}
"""The fields of the schema that are lists of objects."""
MAX_REPEATS = 50
"""How often one name may be selected in a document: comparing fields of one name takes the square of their number."""


class Measure(Struct, frozen=True):
    """How deep a selection is, what it costs, and how many aliases it has."""

    depth: int = 0
    cost: int = 0
    aliases: int = 0


NOTHING = Measure()


def check_document(document: DocumentNode, settings: GraphqlSettings) -> None:
    """Raise GraphQLError for a document that asks for more than the settings allow."""
    try:
        found = Measurement(document).total()
    except RecursionError:
        raise too_complex("its fragments are nested too deeply") from None
    if found.depth > settings.max_depth:
        raise too_complex(f"its fields are nested {found.depth} deep, the limit is {settings.max_depth}")
    if found.aliases > settings.max_aliases:
        raise too_complex(f"it has {found.aliases} aliases, the limit is {settings.max_aliases}")
    if found.cost > settings.max_cost:
        raise too_complex(f"it costs {found.cost}, the limit is {settings.max_cost}")


def too_complex(why: str) -> GraphQLError:
    """Return the error for a document that asks for too much."""
    return GraphQLError(f"The document is too complex: {why}", extensions={"code": TOO_COMPLEX})


class Measurement:
    """The measuring of one document."""

    def __init__(self, document: DocumentNode) -> None:
        self._document = document
        self._fragments: dict[str, FragmentDefinitionNode] = {}
        for definition in document.definitions:
            if isinstance(definition, FragmentDefinitionNode):
                self._fragments[definition.name.value] = definition
        self._measured: dict[str, Measure] = {}
        self._repeats: dict[str, int] = {}

    def total(self) -> Measure:
        """Return the measure of everything in the document: all operations, and fragments that none of them uses."""
        parts = []
        for definition in self._document.definitions:
            if isinstance(definition, OperationDefinitionNode):
                parts.append(self._selections(definition.selection_set))
            elif isinstance(definition, FragmentDefinitionNode):
                self._fragment(definition.name.value)
        return _sum(parts)

    def _selections(self, selected: SelectionSetNode | None) -> Measure:
        if selected is None:
            return NOTHING
        return _sum([self._selection(each) for each in selected.selections])

    def _selection(self, node: SelectionNode) -> Measure:
        if isinstance(node, FieldNode):
            return self._field(node)
        if isinstance(node, FragmentSpreadNode):
            return self._fragment(node.name.value)
        selected: SelectionSetNode | None = getattr(node, "selection_set", None)
        return self._selections(selected)

    def _field(self, node: FieldNode) -> Measure:
        name = node.name.value
        alias = 0
        shown = name
        if node.alias is not None:
            alias = 1
            shown = node.alias.value
        repeats = self._repeats[shown] = self._repeats.get(shown, 0) + 1
        if repeats > MAX_REPEATS:
            raise too_complex(f"{shown!r} is selected more than {MAX_REPEATS} times")
        inside = self._selections(node.selection_set)
        return Measure(inside.depth + 1, 1 + inside.cost * SIZES.get(name, 1), inside.aliases + alias)

    def _fragment(self, name: str) -> Measure:
        found = self._measured.get(name)
        if found is not None:
            return found
        fragment = self._fragments.get(name)
        if fragment is None:
            return NOTHING  # validation explains it
        self._measured[name] = NOTHING  # one that spreads itself is refused by validation
        measured = self._measured[name] = self._selections(fragment.selection_set)
        return measured


def _sum(parts: list[Measure]) -> Measure:
    depth = cost = aliases = 0
    for part in parts:
        depth = max(depth, part.depth)
        cost += part.cost
        aliases += part.aliases
    return Measure(depth, cost, aliases)
