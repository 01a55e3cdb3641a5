"""Mounting: what one server offers, offered by another under a prefix.

Rule: what is mounted is copied into the catalogues of the server that mounts, where it is found like anything else; a
change of either server changes the copies, never a call.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

from ferrule.errors import SetupError
from ferrule.server.calls.context import MountedContext
from ferrule.server.offers.catalogue import Catalogue
from ferrule.server.offers.mount_point import MountPoint
from ferrule.server.offers.offers import Offers


class Mount:
    """One server inside another."""

    def __init__(self, host: Offers, child: Offers, prefix: str) -> None:
        point = MountPoint(child, prefix)
        if host is child or child.holds(host):
            raise SetupError(
                f"the server {child.services.name!r} cannot be mounted in {host.services.name!r}:"
                " it is, or holds, that server"
            )
        self.host = host
        self.child = child
        self.point = point
        self._branches = [
            Branch(self, child.tools.catalogue, host.tools.catalogue, point.named, host.tools.adopt),
            Branch(self, child.prompts.catalogue, host.prompts.catalogue, point.named, host.prompts.adopt),
            Branch(self, child.resources.catalogue, host.resources.catalogue, point.placed, host.resources.adopt),
            Branch(self, child.resources.templates, host.resources.templates, point.placed, host.resources.adopt),
        ]

    def begin(self, *, live: bool) -> None:
        """Take over all the child offers, and follow its changes if it is mounted for good."""
        for branch in self._branches:
            branch.check_all()
        try:
            for branch in self._branches:
                branch.take_all()
        except BaseException:
            for branch in self._branches:
                branch.leave()
            raise
        self.child.mounted_in.append(self)
        self.host.mounted.append(self.child)
        if live:
            for branch in self._branches:
                branch.follow()
        if self.child.visibility.judges:
            self.judge()
        if self.child.visibility.scoped:
            self.protect()
        if self.child.versioned:
            self.use_versions()

    def end(self) -> None:
        """Offer nothing of the child any more."""
        self.child.mounted_in.remove(self)
        self.host.mounted.remove(self.child)
        for branch in self._branches:
            branch.leave()

    def adopted(self, entry: Any, key: str) -> Any:
        """Copy an entry of the child for the host."""
        taken = copy.copy(entry)
        taken.mount_path = ((self.point, key), *entry.mount_path)
        if entry.context is not None:
            taken.context = functools.partial(MountedContext, self.host.services)
        return taken

    # -- what the child tells

    def judge(self) -> None:
        """Look at who asks in the host too."""
        self.host.visibility.judge()

    def protect(self) -> None:
        """Look at the scopes of callers in the host too."""
        self.host.visibility.protect()

    def use_versions(self) -> None:
        """Let callers choose versions in the host too."""
        self.host.use_versions()

    def updated(self, uri: str, extra: dict[str, Any]) -> None:
        """Notify subscribers of the host that a resource changed."""
        self.host.updated(self.point.placed(uri), extra)

    def recompose(self) -> None:
        """Take over again what depends on the child's middleware."""
        for branch in self._branches:
            branch.retake()


class Mounts:
    """What is mounted in one server."""

    def __init__(self, offers: Offers) -> None:
        self._offers = offers
        self._mounts: list[Mount] = []

    def __iter__(self) -> Iterator[Mount]:
        return iter(self._mounts)

    def __len__(self) -> int:
        return len(self._mounts)

    def prepare(self, child: Offers, prefix: str) -> Mount:
        """Return a mount that has yet to begin; raises SetupError where it never could."""
        return Mount(self._offers, child, prefix)

    def begin(self, mount: Mount, *, live: bool) -> None:
        """Offer all that a mount brings, now, and later if it is live."""
        mount.begin(live=live)
        self._mounts.append(mount)

    def end(self, child: Offers) -> int:
        """Offer nothing of a server any more, and return how often it was mounted; SetupError where it was not."""
        found = [mount for mount in self._mounts if mount.child is child]
        if not found:
            raise SetupError(f"the server {child.services.name!r} is not mounted in {self._offers.services.name!r}")
        for mount in found:
            self._mounts.remove(mount)
            mount.end()
        return len(found)


class Branch:
    """One catalogue of a mounted server, followed into the same catalogue of its host."""

    def __init__(
        self,
        mount: Mount,
        source: Catalogue[Any],
        target: Catalogue[Any],
        rename: Callable[[str], str],
        adopt: Callable[[Any, str], Any],
    ) -> None:
        self._mount = mount
        self._source = source
        self._target = target
        self._rename = rename
        self._adopt = adopt
        self._taken: dict[str, str] = {}

    def check_all(self) -> None:
        """Raise SetupError if anything has a name the host has already."""
        for key in self._source.registered:
            self.check(key)

    def check(self, key: str) -> None:
        """Raise SetupError if one of this key has a name the host has already."""
        try:
            self._target.check(self._rename(key))
        except SetupError as reason:
            mount = self._mount
            raise SetupError(
                f"{self._source.kind} {key!r} of the server {mount.child.services.name!r} cannot be mounted in"
                f" {mount.host.services.name!r} with the prefix {mount.point.prefix!r}: {reason}"
            ) from None

    def take_all(self) -> None:
        """Take over every entry."""
        for key, entry in self._source.registered.items():
            self.added(key, entry)

    def added(self, key: str, entry: object) -> None:
        """Take over one entry."""
        renamed = self._rename(key)
        self._target.add(renamed, self._copied(key, entry))
        self._taken[key] = renamed

    def replaced(self, key: str, entry: object) -> None:
        """Put a copy of one entry in the place of that of another."""
        if self._holds(key):
            self._target.add(self._taken[key], self._copied(key, entry), replace=True)

    def removed(self, key: str) -> None:
        """Let go of one entry."""
        if self._holds(key):
            self._target.remove(self._taken[key])
        del self._taken[key]

    def switched(self) -> None:
        """Follow what was switched on or off."""
        self._target.switch()

    def exchanged(self, key: str, entry: object) -> None:
        """Put a new copy in the place of the old one."""
        if self._holds(key):
            self._target.exchange(self._taken[key], self._copied(key, entry))

    def _copied(self, key: str, entry: object) -> Any:
        return self._adopt(self._mount.adopted(entry, key), self._rename(key))

    def _holds(self, key: str) -> bool:
        """Return whether the host still offers what was taken over: it may have removed that, and offer its own."""
        held: Any = self._target.registered.get(self._taken[key])
        return held is not None and bool(held.mount_path) and held.mount_path[0][0] is self._mount.point

    def retake(self) -> None:
        """Put new copies in the place of the old ones, in the same order."""
        for key in list(self._taken):
            if key in self._source.registered:
                self.exchanged(key, self._source.registered[key])

    def follow(self) -> None:
        """Begin to follow changes."""
        self._source.followers.append(self)

    def leave(self) -> None:
        """Follow changes no more, and release every entry."""
        if self in self._source.followers:
            self._source.followers.remove(self)
        for key in list(self._taken):
            self.removed(key)
