"""Refuses callers without the scopes of what they ask for, before any middleware sees the request.

Rule: whoever runs something looks at its scopes again, for middleware may have put another name into the call. What
stands here keeps caches, tasks and layers of users from answering what its caller may not ask.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from ferrule.errors import Refusal
from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import Dispatcher, Handler
from ferrule.schema.completion import PromptReference
from ferrule.server.calls.kept_results import PREFIX as KEPT
from ferrule.server.offers.catalogue import Catalogue
from ferrule.server.offers.entry import Entry
from ferrule.server.offers.offers import Offers


class ScopeGuard:
    """Looks at the scopes of every caller of one server."""

    def __init__(self, offers: Offers) -> None:
        self._offers = offers
        self._services = offers.services

    def surround(self, dispatcher: Dispatcher) -> None:
        """Look at calls before all else does."""
        handlers = dispatcher.handlers
        checks = {
            "tools/call": self._tool,
            "prompts/get": self._prompt,
            "resources/read": self._resource,
            "completion/complete": self._completed,
            "subscriptions/listen": self._listen,
        }
        for method, check in checks.items():
            handlers[method] = _after(check, handlers[method])

    def _tool(self, call: Call) -> None:
        self._check_entry(self._offers.tools.catalogue, call.params.name, call)

    def _prompt(self, call: Call) -> None:
        self._check_entry(self._offers.prompts.catalogue, call.params.name, call)

    def _resource(self, call: Call) -> None:
        self._check_resource(call.params.uri, call)

    def _completed(self, call: Call) -> None:
        ref = call.params.ref
        if isinstance(ref, PromptReference):
            self._check_entry(self._offers.prompts.catalogue, ref.name, call)
            return
        for catalogue in self._offers.resources.catalogues:
            self._check_entry(catalogue, ref.uri, call)

    def _listen(self, call: Call) -> None:
        """Let a caller hear of the resources it may read, and of no others."""
        wanted = call.params.notifications
        uris = []
        for uri in wanted.resource_subscriptions or ():
            try:
                self._check_resource(uri, call)
            except Refusal:
                continue
            uris.append(uri)
        heard = structs.replace(wanted, resource_subscriptions=uris or None)
        call.params = structs.replace(call.params, notifications=heard)

    def _check_entry(self, catalogue: Catalogue[Any], key: str, call: Call) -> None:
        entry: Entry | None = self._offers.visibility.find(call, catalogue, key)
        # What is not there for the caller is refused where it is looked for, in the words of that.
        if entry is not None and entry.scopes:
            entry.admit(call, self._services)

    def _check_resource(self, uri: str, call: Call) -> None:
        if uri.startswith(KEPT):
            return
        try:
            entry, _ = self._offers.resources.find_for(call, uri)
        except Refusal:
            return
        if entry.scopes:
            entry.admit(call, self._services)


def _after(check: Any, handler: Handler) -> Handler:
    async def handle(call: Call) -> Any:
        check(call)
        return await handler(call)

    return handle
