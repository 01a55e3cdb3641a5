"""An OpenAPI document: read from wherever it is, its references followed, its operations told one by one."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from ferrule.errors import SetupError

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
PATH = re.compile(r"/(?:[^/\\\x00-\x20\x7f][^\\\x00-\x20\x7f]*)?")
"""One slash, then whatever can be seen: neither a second slash, which begins a host, nor a backslash, taken for one."""
MAX_HOPS = 64
"""How many references may stand one behind the other."""
MAX_PARAMETERS = 100_000
"""How many parameters all operations may have: paths that refer to one path share what that one has."""


class Document:
    """An OpenAPI 3 document whose references stay inside it."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        version = root.get("openapi")
        if not isinstance(version, str) or not version.startswith("3."):
            if "swagger" in root:
                told = f"swagger {root['swagger']}"
            else:
                told = f"openapi {version!r}"
            raise SetupError(f"the OpenAPI document says {told}: only 3.x is read; convert it first")
        self.root = root
        self.is_3_0 = version.startswith("3.0")
        """Whether its schemas are the dialect of their own that 3.0 had."""
        information = root.get("info") or {}
        if not isinstance(information, Mapping):
            raise SetupError(f"`info` of the OpenAPI document is an object, not {information!r:.100}")
        self.title = str(information.get("title") or "api")
        self.version = str(information.get("version") or "0.0.0")
        self.description: str | None = information.get("description") or None

    @classmethod
    def read(cls, spec: Mapping[str, Any] | str | bytes | Path) -> Document:
        """Read a document: an object, a text of JSON or YAML, or the path of a file with one."""
        if isinstance(spec, Mapping):
            return cls(spec)
        named = spec if isinstance(spec, Path) else None
        if isinstance(spec, str) and spec.startswith(("http://", "https://")):
            raise SetupError(f"nothing is fetched from {spec}: give what is there, as in httpx.get({spec!r}).json()")
        if isinstance(spec, str) and "\n" not in spec and not spec.lstrip().startswith(("{", "[")):
            named = Path(spec)
        try:
            text: str | bytes = spec if named is None else named.read_bytes()  # type: ignore[assignment]
        except OSError as reason:
            raise SetupError(f"the OpenAPI document {named} cannot be read: {reason.strerror}") from None
        found = _parsed(text)
        if not isinstance(found, Mapping):
            raise SetupError(f"an OpenAPI document is an object, not {type(found).__name__}")
        return cls(found)

    def follow(self, part: object, place: str) -> Mapping[str, Any]:
        """Return a part of the document, or what it refers to: no copy, since many aliases may lead to a large one."""
        for _ in range(MAX_HOPS + 1):
            if not isinstance(part, Mapping):
                raise SetupError(f"{place} is not an object in the OpenAPI document")
            if "$ref" not in part:
                return part
            part = self.at(part["$ref"])
        raise SetupError(f"{place}: the references in the OpenAPI document go round in a circle")

    def at(self, reference: object) -> Any:
        """Return what stands at a reference such as `#/components/schemas/Pet`."""
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise SetupError(f"the reference {reference!r} leaves the OpenAPI document: bundle it into one file first")
        found: Any = self.root
        for step in reference[2:].split("/"):
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                raise SetupError(f"the reference {reference} leads nowhere in the OpenAPI document")
        return found

    def operations(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Yield each operation: its method, its path, and what is said about it with what its path says for all."""
        count = 0
        for path, item in (self.root.get("paths") or {}).items():
            if not isinstance(path, str) or not PATH.fullmatch(path):
                # Anything else could be an address of its own, where the client's credentials would go.
                raise SetupError(
                    f"the path {path!r:.200} in the OpenAPI document must begin with one slash, as in /pets"
                )
            whole = self.follow(item, path)
            for method in METHODS:
                if method in whole:
                    said = self.follow(whole[method], f"{method.upper()} {path}")
                    parameters = [*(whole.get("parameters") or ()), *(said.get("parameters") or ())]
                    count += len(parameters)
                    if count > MAX_PARAMETERS:
                        raise SetupError(f"the OpenAPI document has over {MAX_PARAMETERS:,} parameters of operations")
                    yield method.upper(), path, ChainMap({"parameters": parameters}, said)  # type: ignore[arg-type]  # only read


def _parsed(text: str | bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as reason:
        try:
            import yaml
        except ImportError:
            raise SetupError(
                f"the OpenAPI document is not JSON ({reason}); if it is YAML, install PyYAML to have it read"
            ) from None
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as reason:
        raise SetupError(f"the OpenAPI document is neither JSON nor YAML: {reason}") from None
