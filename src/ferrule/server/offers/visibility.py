"""Who sees what: tags and names switched on or off, and rules that look at who asks.

Rule: what a caller does not see does not exist for it: it is refused in the same words.
A server without rules, and without sessions that see something of their own, has none of this in the way of a call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Raw, structs

from ferrule.errors import SetupError
from ferrule.protocol.call import Call
from ferrule.server.calls.context import Context, MountedContext
from ferrule.server.calls.services import Services
from ferrule.server.functions.signatures import takes
from ferrule.server.offers.catalogue import Catalogue
from ferrule.server.offers.entry import Entry
from ferrule.server.offers.mount_point import Component, Holder, Rule
from ferrule.server.offers.switches import KINDS, Switches


def _unversioned(key: str, entry: Entry) -> str:
    """Return the name rules and switches know an entry by: for a version, the one all its versions have."""
    if entry.unlisted:
        return key.rpartition("@")[0]
    return key


KEYS = {"tool": "name", "prompt": "name", "resource": "uri", "resource template": "uri_template"}
"""By which member something of each kind is known."""


class Visibility:
    """What of a server is seen, by everybody and by each caller."""

    def __init__(self, services: Services, mounted_in: Sequence[Holder], *, on_use: Callable[[], None]) -> None:
        self._services = services
        self._links = services.links
        self._mounted_in = mounted_in
        self._on_use = on_use
        """Called when calls pass through here from now on."""
        settings = services.settings
        self._include: frozenset[str] | None = None
        if settings.include_tags is not None:
            self._include = frozenset(settings.include_tags)
        self._exclude = frozenset(settings.exclude_tags or ())
        self._switches = Switches()
        self.catalogues: list[Catalogue[Any]] = []
        """All that can be switched."""
        self.rules: list[Rule] = []
        self.judges = False
        """Whether anything is seen by some callers only."""
        self.in_use = False
        """Whether calls pass through here at all."""
        self.scoped = False
        """Whether anything here needs scopes."""

    # -- for everybody

    def switch(self, names: Sequence[str], tags: Iterable[str], kind: str | None, *, on: bool) -> None:
        """Switch something on or off for everybody."""
        self._switches.say(self._services, names, tags, kind, on=on)
        for catalogue in self.catalogues:
            catalogue.switch()

    def is_on(self, kind: str, key: str, entry: Entry) -> bool:
        """Return whether something is offered to everybody, here and in each server it was mounted from."""
        # Who switches off a name means all of its versions.
        for each in (key, _unversioned(key, entry)):
            if not self.admits(kind, each, entry.tags):
                return False
        for point, name in entry.mount_path:
            for each in (name, _unversioned(name, entry)):
                if not point.child.admits(kind, each, entry.tags):
                    return False
        return True

    def admits(self, kind: str, key: str, tags: frozenset[str]) -> bool:
        """Return whether the tags and switches of this server alone let something be offered."""
        said = self._switches.verdict(kind, [(self._services, key)], tags)
        if said is not None:
            return said
        return not tags & self._exclude and (self._include is None or bool(tags & self._include))

    def check(self, names: Iterable[str], tags: Iterable[str], kind: str | None) -> None:
        """Raise SetupError for words that switch nothing."""
        Switches().say(self._services, names, tags, kind, on=True)
        searched = []
        for catalogue in self.catalogues:
            if kind in (None, catalogue.kind):
                searched.append(catalogue)
        for name in names:
            if not any(name in catalogue.registered for catalogue in searched):
                hint = ""
                for catalogue in searched:
                    hint = hint or catalogue.hint(name)
                raise SetupError(f"there is no {kind or 'tool, prompt or resource'} {name!r} to switch{hint}")

    # -- for each caller

    def add_rule(self, rule: Rule) -> None:
        """Let a function say who sees what."""
        if not callable(rule) or not takes(rule, 2):
            raise SetupError(f"a rule of visibility is a function of (ctx, component), not {rule!r}")
        if inspect.iscoroutinefunction(rule):
            raise SetupError("a rule of visibility must be a plain `def`: lists are answered without waiting")
        self.rules.append(rule)
        self.judge()

    def protect(self) -> None:
        """Look at the scopes of callers from now on, here and where this server is mounted."""
        if not self.scoped:
            self.scoped = True
            self._on_use()
        for holder in self._mounted_in:
            holder.protect()

    def notice(self, entry: Entry) -> None:
        """Called when something is offered: some entries say themselves who sees them."""
        if entry.scopes:
            self.protect()
        if entry.visible is not None:
            if inspect.iscoroutinefunction(entry.visible):
                raise SetupError("visible= must be a plain `def`: lists are answered without waiting")
            if not takes(entry.visible, 1):
                raise SetupError(f"visible= is a function of (ctx), not {entry.visible!r}")
            self.judge()

    def judge(self) -> None:
        """Look at who asks from now on, here and where this server is mounted."""
        if self._services.settings.cache_scope == "public":
            raise SetupError('cache_scope="public" lets caches give one caller\'s list to another: leave it "private"')
        self.judges = True
        self.use()
        for holder in self._mounted_in:
            holder.judge()

    def use(self) -> None:
        """Let calls pass through here from now on."""
        if not self.in_use:
            self.in_use = True
            self._on_use()

    def switch_for(
        self, call: Call, services: Services, names: Iterable[str], tags: Iterable[str], kind: str | None, *, on: bool
    ) -> None:
        """Switch something for the session a call belongs to, or for its principal, and tell nobody else."""
        links = self._links
        own = links.own_switches(call) or Switches()
        before = self._seen(call)
        own.say(services, list(names), tags, kind, on=on)
        links.keep_switches(call, own)
        self.use()
        after = self._seen(call)
        changed = []
        for each, notice in KINDS.items():
            if before[each] != after[each] and notice not in changed:
                changed.append(notice)
        for notice in changed:
            links.tell_one(call, notice)

    def _seen(self, call: Call) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for catalogue in self.catalogues:
            seen = found[catalogue.kind] = []
            for key, entry in catalogue.registered.items():
                if self.sees(call, catalogue, key, entry):
                    seen.append(key)
        return found

    def sees(self, call: Call, catalogue: Catalogue[Any], key: str, entry: Entry) -> bool:
        """Return whether a caller sees something."""
        own = self._links.own_switches(call)
        said = None
        if own is not None:
            names: list[tuple[object, str]] = [(self._services, key), (self._services, _unversioned(key, entry))]
            for point, name in entry.mount_path:
                names.append((point.child.services, name))
                names.append((point.child.services, _unversioned(name, entry)))
            said = own.verdict(catalogue.kind, names, entry.tags)
        if said is None:
            said = key in catalogue
        if not said:
            return False
        return not self.judges or self._judged(call, catalogue, key, entry)

    def _judged(self, call: Call, catalogue: Catalogue[Any], key: str, entry: Entry) -> bool:
        """Return whether the rules of the entry, of this server and of those it is from let a caller see it."""
        if entry.visible is not None and not entry.visible(self._context(call, entry.services)):
            return False
        judges = [(self._services, key, self.rules)]
        for point, name in entry.mount_path:
            judges.append((point.child.services, name, list(point.child.rules)))
        for services, name, rules in judges:
            for rule in rules:
                component = Component(catalogue.kind, _unversioned(name, entry), entry.tags, catalogue.listed(entry))
                if not rule(self._context(call, services), component):
                    return False
        return True

    def find(self, call: Call, catalogue: Catalogue[Any], key: str) -> Any:
        """Return what has a key, if the caller sees it; who came through a server that mounts this one was judged."""
        if not self.in_use or not self._links.knows(call):
            return catalogue.get(key)
        entry = catalogue.registered.get(key)
        if entry is not None and self.sees(call, catalogue, key, entry):
            return entry
        return None

    def listed(self, kind: str, call: Call, services: Services) -> list[Any]:
        """Return what a caller sees of one kind in this server, or in one mounted here, as that one lists it."""
        found = []
        for catalogue in self.catalogues:
            if catalogue.kind != kind:
                continue
            for key, entry in catalogue.registered.items():
                if entry.unlisted or not self.sees(call, catalogue, key, entry):
                    continue
                if services is self._services:
                    found.append(catalogue.listed(entry))
                for point, name in entry.mount_path:
                    if point.child.services is services:
                        found.append(structs.replace(catalogue.listed(entry), **{KEYS[kind]: name}))
        return found

    def _context(self, call: Call, services: Services) -> Context[Any]:
        if services is self._services:
            return Context(call, services)
        return MountedContext(self._services, call, services)

    def page(self, catalogue: Catalogue[Any], call: Call) -> Raw:
        """Return a page of what a caller sees; the common one where it sees what everybody sees."""
        if not self.judges and self._links.own_switches(call) is None:
            return catalogue.page(call)
        seen = []
        for key, entry in catalogue.registered.items():
            if self.sees(call, catalogue, key, entry):
                seen.append(entry)
        return catalogue.page_of(seen, call)
