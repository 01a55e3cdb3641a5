"""Who sees what: tags and names switched on or off, and rules that look at who asks.

Rule: what a caller does not see does not exist for it: it is refused in the same words.
A server without rules, and without sessions that see something of their own, has none of this in the way of a call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct

from ferrule.errors import SetupError
from ferrule.protocol.call import Call
from ferrule.schema.notices import PROMPTS_CHANGED, RESOURCES_CHANGED, TOOLS_CHANGED
from ferrule.server.calls.context import Context
from ferrule.server.functions.signatures import takes
from ferrule.server.offers.catalogue import Catalogue
from ferrule.server.offers.entry import Entry
from ferrule.server.offers.mounts import MountedContext

if TYPE_CHECKING:
    from ferrule.server.offers.resources import FoundResource
    from ferrule.server.server import Server

Rule = Callable[[Context[Any], "Component"], bool]
Slots = Sequence[tuple["Server", str]]

KINDS = {
    "tool": TOOLS_CHANGED,
    "prompt": PROMPTS_CHANGED,
    "resource": RESOURCES_CHANGED,
    "resource template": RESOURCES_CHANGED,
}
"""What can be switched, and what is told when the list of it changes."""


class Component(Struct, frozen=True):
    """A tool, prompt, resource or resource template, as a rule sees it."""

    kind: str
    name: str
    """The name, or the URI."""
    tags: frozenset[str]
    listed: Any


class Switches:
    """What is switched on or off by name or by tag, in one server; of several words on one thing the last counts."""

    def __init__(self) -> None:
        self._words: dict[tuple[Server, str | None, str, bool], bool] = {}

    def say(self, server: Server, names: Iterable[str], tags: Iterable[str], kind: str | None, *, on: bool) -> None:
        """Switch what has one of these names or tags in a server."""
        if isinstance(tags, str):
            raise SetupError(f"tags must be a set of texts, not the text {tags!r}")
        if kind is not None and kind not in KINDS:
            raise SetupError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
        said = [*((server, kind, name, False) for name in names), *((server, kind, tag, True) for tag in tags)]
        if not said:
            raise SetupError("say what to switch: enable('name'), disable(tags={'admin'})")
        for word in said:
            self._words.pop(word, None)
            self._words[word] = on

    def verdict(self, kind: str, places: Slots, tags: frozenset[str]) -> bool | None:
        """Return what was last said about something that has these names in these servers; None for nothing."""
        for (server, meant, text, is_tag), on in reversed(self._words.items()):
            if meant in (None, kind) and any(
                server is place and (text in tags if is_tag else text == key) for place, key in places
            ):
                return on
        return None


class Visibility:
    """What of a server is seen, by everybody and by each caller."""

    def __init__(self, server: Server, include: Iterable[str] | None, exclude: Iterable[str] | None) -> None:
        self._server = server
        if include is None:
            self._include = None
        else:
            self._include = frozenset(include)
        self._exclude = frozenset(exclude or ())
        self._switches = Switches()
        self.rules: list[Rule] = []
        self.judges = False
        """Whether anything is seen by some callers only."""
        self.in_use = False
        """Whether calls pass through here at all."""

    # -- for everybody

    def switch(self, names: Sequence[str], tags: Iterable[str], kind: str | None, *, on: bool) -> None:
        """Switch something on or off for everybody."""
        self._switches.say(self._server, names, tags, kind, on=on)
        for catalogue in self.catalogues():
            catalogue.switch()

    def is_on(self, kind: str, key: str, entry: Entry) -> bool:
        """Return whether something is offered to everybody, here and in each server it was mounted from."""
        return self.admits(kind, key, entry.tags) and all(
            mount.child.visibility.admits(kind, name, entry.tags) for mount, name in entry.way
        )

    def admits(self, kind: str, key: str, tags: frozenset[str]) -> bool:
        """Return whether the tags and switches of this server alone let something be offered."""
        said = self._switches.verdict(kind, [(self._server, key)], tags)
        if said is not None:
            return said
        return not tags & self._exclude and (self._include is None or bool(tags & self._include))

    def catalogues(self) -> Iterator[Catalogue[Any]]:
        """Yield all that can be switched."""
        server = self._server
        yield from (server.tools.catalogue, server.prompts.catalogue)
        yield from (server.resources.catalogue, server.resources.templates)

    def check(self, names: Iterable[str], tags: Iterable[str], kind: str | None) -> None:
        """Raise SetupError for words that switch nothing."""
        Switches().say(self._server, names, tags, kind, on=True)
        searched = []
        for catalogue in self.catalogues():
            if kind in (None, catalogue.kind):
                searched.append(catalogue)
        for name in names:
            if not any(name in catalogue.registered for catalogue in searched):
                hint = next((hint for catalogue in searched if (hint := catalogue.hint(name))), "")
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

    def notice(self, entry: Entry) -> None:
        """Learn of something that is offered: some say themselves who sees them."""
        if entry.visible is not None:
            if inspect.iscoroutinefunction(entry.visible):
                raise SetupError("visible= must be a plain `def`: lists are answered without waiting")
            if not takes(entry.visible, 1):
                raise SetupError(f"visible= is a function of (ctx), not {entry.visible!r}")
            self.judge()

    def judge(self) -> None:
        """Look at who asks from now on, here and where this server is mounted."""
        if self._server.settings.cache_scope == "public":
            raise SetupError('cache_scope="public" lets caches give one caller\'s list to another: leave it "private"')
        self.judges = True
        self.use()
        for mount in self._server.mounted_in:
            mount.host.visibility.judge()

    def use(self) -> None:
        """Let calls pass through here from now on."""
        if not self.in_use:
            self.in_use = True
            self._server.recompose()

    def switch_for(
        self, call: Call, server: Server, names: Iterable[str], tags: Iterable[str], kind: str | None, *, on: bool
    ) -> None:
        """Switch something for the session a call belongs to, or for its principal, and tell nobody else."""
        links = self._server.links
        own = links.own_switches(call) or Switches()
        before = self._seen(call)
        own.say(server, list(names), tags, kind, on=on)
        links.keep_switches(call, own)
        self.use()
        after = self._seen(call)
        for notice in dict.fromkeys(KINDS[kind] for kind in KINDS if before[kind] != after[kind]):
            links.tell_one(call, notice)

    def _seen(self, call: Call) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for catalogue in self.catalogues():
            found[catalogue.kind] = [
                key for key, entry in catalogue.registered.items() if self.sees(call, catalogue, key, entry)
            ]
        return found

    def sees(self, call: Call, catalogue: Catalogue[Any], key: str, entry: Entry) -> bool:
        """Return whether a caller sees something."""
        own = self._server.links.own_switches(call)
        said = None
        if own is not None:
            places = [(self._server, key), *((mount.child, name) for mount, name in entry.way)]
            said = own.verdict(catalogue.kind, places, entry.tags)
        if not (key in catalogue if said is None else said):
            return False
        if not self.judges:
            return True
        if entry.visible is not None and not entry.visible(self._context(call, entry.server)):
            return False
        judges = [(self._server, key), *((mount.child, name) for mount, name in entry.way)]
        return all(
            rule(self._context(call, server), Component(catalogue.kind, name, entry.tags, catalogue.listed(entry)))
            for server, name in judges
            for rule in server.visibility.rules
        )

    def find(self, call: Call, catalogue: Catalogue[Any], key: str) -> Any:
        """Return what has a key, if the caller sees it; who came through a server that mounts this one was judged."""
        if not self.in_use or not self._server.links.knows(call):
            return catalogue.get(key)
        entry = catalogue.registered.get(key)
        if entry is not None and self.sees(call, catalogue, key, entry):
            return entry
        return None

    def find_resource(self, call: Call, uri: str) -> FoundResource:
        """Return what answers to a URI among what the caller sees."""
        kinds = {catalogue.kind: catalogue for catalogue in self._server.resources.catalogues}
        return self._server.resources.find(uri, lambda kind, entry: self.find(call, kinds[kind], entry.uri) is not None)

    def _context(self, call: Call, server: Server) -> Context[Any]:
        if server is self._server:
            return Context(call, server)
        return MountedContext(self._server, call, server)

    def page(self, catalogue: Catalogue[Any], call: Call) -> Raw:
        """Return a page of what a caller sees; the common one where it sees what everybody sees."""
        if not self.judges and self._server.links.own_switches(call) is None:
            return catalogue.page(call)
        seen = []
        for key, entry in catalogue.registered.items():
            if self.sees(call, catalogue, key, entry):
                seen.append(entry)
        return catalogue.page_of(seen, call)
