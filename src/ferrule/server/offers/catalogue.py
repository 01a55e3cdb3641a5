"""What a server lists: in order of registration, in pages, each encoded once and kept until something changes."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct

from ferrule.errors import CapabilityOff, InvalidParams, SetupError, quoted
from ferrule.protocol.call import Call
from ferrule.schema.completion import PromptReference, ResourceReference
from ferrule.schema.model import PagedResult

if TYPE_CHECKING:
    from ferrule.server.offers.spelling import Spellings

Entry = TypeVar("Entry")

_write = msgspec.json.Encoder().encode

CURSOR_MARK = b"after:"
MAX_DIGITS = 20


def unknown_reference(ref: PromptReference | ResourceReference) -> InvalidParams:
    """Make the refusal to complete for something that is not there, or not for this caller."""
    if isinstance(ref, PromptReference):
        name = quoted(ref.name)
        return InvalidParams(f"Unknown prompt: {name}", {"ref": {"type": "ref/prompt", "name": name}})
    uri = quoted(ref.uri)
    return InvalidParams(f"Unknown resource template: {uri}", {"ref": {"type": "ref/resource", "uri": uri}})


def off(capability: str) -> CapabilityOff:
    """Make the refusal of a request for something the server does not offer."""
    return CapabilityOff(f"Method not found: this server offers no {capability}", {"capability": capability})


class Follower(Protocol):
    """Whoever follows a catalogue: a server that mounts this one."""

    def check(self, key: str) -> None:
        """Raise SetupError if one of this key could not be followed."""

    def added(self, key: str, entry: object) -> None:
        """Called when one was added."""

    def replaced(self, key: str, entry: object) -> None:
        """Called when another took the place of one."""

    def removed(self, key: str) -> None:
        """Called when one was removed."""

    def exchanged(self, key: str, entry: object) -> None:
        """Called when one runs in another way than before."""

    def switched(self) -> None:
        """Called when some were switched on or off."""


class View(Struct, frozen=True):
    """How some clients see a list: by a name, and what is shown of each entry, None for nothing."""

    name: str
    shown: Callable[[Any], Any]


class Catalogue(Generic[Entry]):
    """Entries by key, and the pages that list them."""

    def __init__(
        self,
        kind: str,
        result: Callable[..., PagedResult],
        listed: Callable[[Entry], Any],
        *,
        page_size: int,
        on_change: Callable[[], None],
        is_on: Callable[[str, str, Entry], bool] | None = None,
    ) -> None:
        self.kind = kind
        self.page_size = page_size
        self.listed = listed
        self.followers: list[Follower] = []
        self._result = result
        self._on_change = on_change
        self._is_on = is_on
        self._registered: dict[str, Entry] = {}
        self._entries: dict[str, Entry] = {}
        """Those of the registered that are switched on."""
        self._pages: dict[tuple[str, str | None, str], Raw] = {}
        self._spellings: Spellings | None = None
        """Made when an unknown name first comes."""
        self.view: Callable[[Call], View | None] | None = None
        """Chooses how a caller sees the list, where not all see the same."""
        self.lists: Callable[[Entry], bool] | None = None
        """Whether an entry is listed, where not all are; one that is not can be used all the same."""
        self.get = self._entries.get

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    @property
    def registered(self) -> Mapping[str, Entry]:
        """All entries, also those that are switched off."""
        return self._registered

    def add(self, key: str, entry: Entry, *, replace: bool = False) -> None:
        """Offer one more; a second one under the same key is refused unless it is meant to replace the first."""
        replaces = replace and key in self._registered
        if not replaces:
            self.check(key)
        self._registered[key] = entry
        for follower in self.followers:
            if replaces:
                follower.replaced(key, entry)
            else:
                follower.added(key, entry)
        if self._is_on is None or self._is_on(self.kind, key, entry):
            self._entries[key] = entry
            self.changed()
        elif self._entries.pop(key, None) is not None:
            self.changed()

    def check(self, key: str) -> None:
        """Raise SetupError if there is one of this key already, here or where this server is mounted."""
        if key in self._registered:
            whose = self._whose(self._registered[key])
            raise SetupError(f"there is a {self.kind} {key!r} already{whose}: choose another name or remove the first")
        for follower in self.followers:
            follower.check(key)

    def _whose(self, entry: Entry) -> str:
        mount_path = getattr(entry, "mount_path", ())
        if mount_path:
            return f", which is {mount_path[0][1]!r} of the mounted server {mount_path[0][0].child.services.name!r}"
        return ""

    def remove(self, key: str) -> None:
        """Offer one no longer."""
        if self._registered.pop(key, None) is None:
            raise SetupError(f"there is no {self.kind} {key!r}{self.hint(key)}")
        for follower in self.followers:
            follower.removed(key)
        if self._entries.pop(key, None) is not None:
            self.changed()

    def exchange(self, key: str, entry: Entry) -> None:
        """Put another entry in the place of one that is listed alike, without telling anybody but the followers."""
        self._registered[key] = entry
        if key in self._entries:
            self._entries[key] = entry
        for follower in self.followers:
            follower.exchanged(key, entry)

    def switch(self) -> None:
        """Look again at which entries are switched on."""
        if self._is_on is None:
            return
        on = {}
        for key, entry in self._registered.items():
            if self._is_on(self.kind, key, entry):
                on[key] = entry
        if on.keys() != self._entries.keys():
            self._entries.clear()
            self._entries.update(on)
            self.changed()
        for follower in self.followers:
            follower.switched()

    def changed(self) -> None:
        """Forget the encoded pages and tell whoever listens."""
        self._pages.clear()
        self._spellings = None
        self._on_change()

    def hint(self, key: str) -> str:
        """Suggest what may have been meant."""
        spellings = self._spellings
        if spellings is None:
            from ferrule.server.offers.spelling import Spellings

            spellings = self._spellings = Spellings(self._entries)
        meant = spellings.nearest(key)
        return f"; did you mean {meant!r}?" if meant else ""

    def is_listed(self, entry: Entry) -> bool:
        """Return whether an entry is listed; one that is not can be used all the same."""
        if getattr(entry, "unlisted", ""):
            return False
        return self.lists is None or self.lists(entry)

    def page(self, call: Call) -> Raw:
        """Return one page in the form the caller's revision has."""
        if self.view is None:
            view = None
        else:
            view = self.view(call)
        key = (call.peer.revision.version, call.params.cursor, "" if view is None else view.name)
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = self._page(self._entries.values(), call, view)
        return page

    def page_of(self, entries: Iterable[Entry], call: Call) -> Raw:
        """Make one page of some of the entries."""
        return self._page(entries, call, None if self.view is None else self.view(call))

    def _page(self, entries: Iterable[Entry], call: Call, view: View | None) -> Raw:
        return Raw(_write(call.era.shape_result(call, self._make(entries, call.params.cursor, view))))

    def _make(self, entries: Iterable[Entry], cursor: str | None, view: View | None) -> PagedResult:
        listed = list(map(self.listed, filter(self.is_listed, entries)))
        if view is not None:
            every = listed
            listed = []
            for each in every:
                shown = view.shown(each)
                if shown is not None:
                    listed.append(shown)
        start = self._position(cursor, len(listed))
        end = start + self.page_size
        result = self._result(listed[start:end])
        if end < len(listed):
            result.next_cursor = _cursor(end)
        return result

    def _position(self, cursor: str | None, count: int) -> int:
        if cursor is None:
            return 0
        try:
            mark = base64.b64decode(cursor, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            mark = b""
        digits = mark.removeprefix(CURSOR_MARK)
        # Only what `_make` writes is taken, so that nobody can make us keep the same entries under many cursors.
        if digits.isdigit() and len(digits) < MAX_DIGITS:
            start = int(digits)
        else:
            start = 0
        if not 0 < start < count or start % self.page_size or cursor != _cursor(start):
            raise InvalidParams("Invalid cursor: it is not one this server gave for the list as it is now")
        return start


def _cursor(start: int) -> str:
    return base64.urlsafe_b64encode(CURSOR_MARK + str(start).encode()).decode()
