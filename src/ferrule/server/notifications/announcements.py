"""What a server tells of its own accord, from any thread and without waiting."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.notices import PROMPTS_CHANGED, RESOURCES_CHANGED, TOOLS_CHANGED
from ferrule.server.notifications.changes import ChangeNotices
from ferrule.server.notifications.subscriptions import CallbackSubscriber, Subscriber, Subscriptions
from ferrule.server.offers.mounts import Mount
from ferrule.server.offers.resources import Resources

logger = logging.getLogger("ferrule.server")


class Announcements:
    """The telling half of a server."""

    resources: Resources
    changes: ChangeNotices
    subscriptions: Subscriptions
    mounted_in: list[Mount]
    _capabilities: ServerCapabilities | None
    _roots_handlers: list[Callable[[], Any]]

    def notify_resource_updated(self, uri: str, **extra: object) -> None:
        """Tell whoever listens that a resource changed."""
        self.resources.forget(uri)
        self.changes.updated(uri, {"_meta": extra} if extra else {})
        for mount in self.mounted_in:
            mount.host.notify_resource_updated(mount.placed(uri), **extra)

    def notify_tools_changed(self) -> None:
        """Tell whoever listens that the list of tools changed."""
        self._offer_changed(TOOLS_CHANGED)

    def notify_resources_changed(self) -> None:
        """Tell whoever listens that the list of resources changed."""
        self._offer_changed(RESOURCES_CHANGED)

    def notify_prompts_changed(self) -> None:
        """Tell whoever listens that the list of prompts changed."""
        self._offer_changed(PROMPTS_CHANGED)

    def _offer_changed(self, kind: str) -> None:
        self._capabilities = None
        self.changes.list_changed(kind)

    def subscribe(self, uri: str, callback: Callable[[str], Any]) -> Subscriber:
        """Let a function of this process hear of a resource; gives what `unsubscribe` takes."""

        def tell(changed: str) -> None:
            try:
                callback(changed)
            except Exception:
                logger.exception("a subscriber of %s failed", uri)

        subscriber = CallbackSubscriber(tell, (uri,))
        self.subscriptions.add(subscriber)
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Let a function of this process hear no more."""
        self.subscriptions.remove(subscriber)

    def on_roots_changed(self, handler: Callable[[], Any]) -> Callable[[], Any]:
        """Call a function when a client says that its roots changed."""
        self._roots_handlers.append(handler)
        return handler
