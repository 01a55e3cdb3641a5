"""How a web API is offered: which operations become tools, which resources, which stay out; and the options."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.server.openapi.operations import Operation
from ferrule.settings.option import Bytes, check

Kind = Literal["tool", "resource", "none"]


class OpenApiRule(Struct, frozen=True):
    """What becomes of the operations it fits; the first rule that fits decides, and without one all are tools."""

    kind: Kind
    methods: Collection[str] = ()
    pattern: str = ""
    """Searched for in the path, as a regular expression."""
    tags: Collection[str] = ()
    """One of these must be among the operation's."""

    def __post_init__(self) -> None:
        if self.kind not in ("tool", "resource", "none"):
            raise SetupError(f"an OpenApiRule makes a tool, a resource or none, not {self.kind!r}")
        try:
            re.compile(self.pattern)
        except re.error as reason:
            raise SetupError(
                f"the pattern {self.pattern!r} of an OpenApiRule is not a valid regular expression: {reason}"
            ) from None

    def fits(self, operation: Operation) -> bool:
        """Return whether an operation is meant."""
        methods = {method.upper() for method in self.methods}
        return (
            (not methods or operation.method in methods)
            and re.search(self.pattern, operation.path) is not None
            and (not self.tags or not operation.tags.isdisjoint(self.tags))
        )


def kind_of(operation: Operation, rules: Sequence[OpenApiRule]) -> Kind:
    """Return what becomes of an operation."""
    rule = next((rule for rule in rules if rule.fits(operation)), None)
    if rule is None:
        return "tool"
    if rule.kind == "resource" and operation.method != "GET":
        raise SetupError(f"{operation.place} cannot be a resource: only what is read with GET can")
    return rule.kind


MAX_ANSWER = 4 * 1024 * 1024
"""What goes into a message twice, as text and as data, and still fits."""

Adjust = Callable[[Operation, dict[str, Any]], dict[str, Any] | None]
"""Changes the options of a tool, or leaves it out."""


class ImportOptions(Struct, frozen=True, kw_only=True):
    """How a web API is offered."""

    rules: Sequence[OpenApiRule] = ()
    """What becomes of which operations: a tool, a resource, nothing."""
    names: Mapping[str, str] = {}
    """Names by the operation's id or by its place (`GET /pets`)."""
    adjust: Adjust | None = None
    """Changes the options of each tool; returns None to leave it out."""
    forward_headers: Collection[str] = ()
    """Headers of the MCP request that go on to the API; none by default."""
    output_schemas: bool = True
    """Whether tools promise what the API's description promises; an answer that breaks it is a failure then."""
    scheme: str = "api"
    """The scheme of the resources' URIs."""
    max_answer: Bytes = MAX_ANSWER
    """How many bytes an answer of the API may have, unpacked."""

    def __post_init__(self) -> None:
        check(self)
