"""What a peer may be asked, judged by what it declared."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from ferrule.errors import CapabilityNotSupported, MissingCapability
from ferrule.protocol.call import Peer
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.model import ClientCapabilities, JsonObject


def require_client(capabilities: ClientCapabilities, method: str, params: dict[str, object]) -> None:
    """Raise CapabilityNotSupported unless the client declared what this question needs."""
    missing = lacking_for(capabilities, method, params)
    if missing:
        raise CapabilityNotSupported(dotted(missing))


def require_extension(peer: Peer, name: str) -> None:
    """Refuse a request of a client that does not declare an extension."""
    if peer.extension(name) is None:
        raise MissingCapability({"extensions": {name: {}}}, f"This request needs the client extension {name}")


def lacking_for(capabilities: ClientCapabilities, method: str, params: JsonObject) -> JsonObject:
    """Return the part of a capabilities object a client would have to declare for this question; empty when it has."""
    if method == "elicitation/create":
        return _elicitation(capabilities, params.get("mode") or "form")
    if method == "sampling/createMessage":
        if capabilities.sampling is not None and _wants_context(params) and capabilities.sampling.context is None:
            return {"sampling": {"context": {}}}
        return _sampling(capabilities, "tools" in params or "toolChoice" in params)
    if method == "roots/list" and capabilities.roots is None:
        return {"roots": {}}
    return {}


def _elicitation(capabilities: ClientCapabilities, mode: str) -> dict[str, object]:
    declared = capabilities.elicitation
    if declared is None:
        return {"elicitation": {mode: {}}}
    if mode == "url":
        if declared.url is not None:
            return {}
        return {"elicitation": {"url": {}}}
    if declared.form is not None or declared.url is None:
        return {}
    return {"elicitation": {"form": {}}}


def _wants_context(params: dict[str, object]) -> bool:
    return params.get("includeContext") not in {None, "none"}


def _sampling(capabilities: ClientCapabilities, with_tools: bool) -> dict[str, object]:
    declared = capabilities.sampling
    if with_tools and (declared is None or declared.tools is None):
        return {"sampling": {"tools": {}}}
    if declared is None:
        return {"sampling": {}}
    return {}


def dotted(required: JsonObject) -> str:
    """Write a capabilities object with one path in it as that path."""
    path = []
    while required:
        name, required = next(iter(required.items()))
        path.append(name)
    return ".".join(path)


def nested(capability: str) -> JsonObject:
    """Write a dotted path as the capabilities object it names."""
    required: dict[str, object] = {}
    for name in reversed(capability.split(".")):
        required = {name: required}
    return required


def server_offers(capabilities: ServerCapabilities, capability: str) -> bool:
    """Return whether a server declared a capability such as `tools` or `resources.subscribe`."""
    return declares(capabilities, capability)


@lru_cache(maxsize=256)
def _parts(capability: str) -> tuple[str, str]:
    """Split `resources.subscribe` into `resources` and `subscribe`; the second is empty where there is none.

    The same two strings each time: Python's caches of attributes would keep every new one.
    """
    name, _, flag = capability.partition(".")
    return name, flag


def declares(capabilities: ServerCapabilities | ClientCapabilities, capability: str) -> bool:
    """Return whether either side declared a capability; an empty one is always there."""
    if not capability:
        return True
    name, flag = _parts(capability)
    declared = getattr(capabilities, name, None)
    if declared is None:
        return False
    if isinstance(declared, Mapping):
        return _within(declared, flag)
    if flag:
        return bool(getattr(declared, flag))
    return True


def _within(declared: object, path: str) -> bool:
    """Return whether a capability that is kept as it was written has a part such as `requests.tools.call`."""
    if not path:
        return True
    for name in path.split("."):
        if not isinstance(declared, Mapping):
            return False
        declared = declared.get(name)
        if declared is None or declared is False:
            return False
    return True
