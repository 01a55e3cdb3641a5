"""What is switched on and off, by name and by tag."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ferrule.errors import SetupError
from ferrule.schema.notices import PROMPTS_CHANGED, RESOURCES_CHANGED, TOOLS_CHANGED

KINDS = {
    "tool": TOOLS_CHANGED,
    "prompt": PROMPTS_CHANGED,
    "resource": RESOURCES_CHANGED,
    "resource template": RESOURCES_CHANGED,
}
"""What can be switched, and what is told when the list of it changes."""

Names = Sequence[tuple[object, str]]
"""The names something has: in which server, and what there."""


class Switches:
    """What is switched on or off by name or by tag, in one server; of several words on one thing the last counts."""

    def __init__(self) -> None:
        self._words: dict[tuple[object, str | None, str, bool], bool] = {}

    def say(self, server: object, names: Iterable[str], tags: Iterable[str], kind: str | None, *, on: bool) -> None:
        """Switch what has one of these names or tags in a server."""
        if isinstance(tags, str):
            raise SetupError(f"tags must be a set of texts, not the text {tags!r}")
        if kind is not None and kind not in KINDS:
            raise SetupError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
        said = []
        for name in names:
            said.append((server, kind, name, False))
        for tag in tags:
            said.append((server, kind, tag, True))
        if not said:
            raise SetupError("say what to switch: enable('name'), disable(tags={'admin'})")
        for word in said:
            self._words.pop(word, None)
            self._words[word] = on

    def verdict(self, kind: str, places: Names, tags: frozenset[str]) -> bool | None:
        """Return what was last said about something that has these names in these servers; None for nothing."""
        for (server, meant, text, is_tag), on in reversed(self._words.items()):
            if meant not in (None, kind):
                continue
            for place, key in places:
                if server is place and (text in tags if is_tag else text == key):
                    return on
        return None
