"""Notifications: progress, log messages, changes, cancellation."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType, field

from ferrule.schema.model import SUBSCRIPTION_KEY, LogLevel, Model, Name, Params, Token, Uri

CANCELLED = "notifications/cancelled"
INITIALIZED = "notifications/initialized"
PROGRESS = "notifications/progress"
LOG_MESSAGE = "notifications/message"
TOOLS_CHANGED = "notifications/tools/list_changed"
PROMPTS_CHANGED = "notifications/prompts/list_changed"
RESOURCES_CHANGED = "notifications/resources/list_changed"
RESOURCE_UPDATED = "notifications/resources/updated"
ROOTS_CHANGED = "notifications/roots/list_changed"
ELICITATION_COMPLETE = "notifications/elicitation/complete"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TASK_STATUS_CHANGED = "notifications/tasks/status"
TASK_CHANGED = "notifications/tasks"

NOTICES = frozenset(
    {
        *(CANCELLED, INITIALIZED, PROGRESS, LOG_MESSAGE, TOOLS_CHANGED, PROMPTS_CHANGED, RESOURCES_CHANGED),
        *(RESOURCE_UPDATED, ROOTS_CHANGED, ELICITATION_COMPLETE, ACKNOWLEDGED, TASK_STATUS_CHANGED, TASK_CHANGED),
    }
)
"""Every notification of the protocol itself."""

LOG_LEVELS: dict[str, int] = {
    "debug": 0,
    "info": 1,
    "notice": 2,
    "warning": 3,
    "error": 4,
    "critical": 5,
    "alert": 6,
    "emergency": 7,
}
"""The levels of log messages, with their ranks."""

OLD_NAMES = {
    "resources/updated": RESOURCE_UPDATED,
    "resources/listChanged": RESOURCES_CHANGED,
    "resources/list_changed": RESOURCES_CHANGED,
    "tools/listChanged": TOOLS_CHANGED,
    "tools/list_changed": TOOLS_CHANGED,
    "prompts/listChanged": PROMPTS_CHANGED,
    "prompts/list_changed": PROMPTS_CHANGED,
    "logging/message": LOG_MESSAGE,
    "roots/list_changed": ROOTS_CHANGED,
}
"""Names some older peers use; understood when received, never sent."""


class NoticeMeta(Model, kw_only=True):
    """The subscription a notice belongs to (stateless era)."""

    subscription_id: int | str | None = field(default=None, name=SUBSCRIPTION_KEY)


class Notice(Model, kw_only=True):
    """Params of any notification."""

    meta: NoticeMeta | None = field(default=None, name="_meta")


class CancelledParams(Model, kw_only=True):
    """Which request is not wanted any more."""

    request_id: Token | UnsetType = UNSET
    reason: str | None = None


class ProgressParams(Model, omit_defaults=True, kw_only=True):
    """How far a running request is."""

    progress_token: Token
    progress: float
    total: float | None = None
    message: str | None = None


class LogMessageParams(Model, kw_only=True):
    """Something a server logs for its client."""

    level: LogLevel
    data: Any = None
    logger: str | None = None


class ResourceUpdatedParams(Notice, kw_only=True):
    """Which resource changed."""

    uri: Uri


class SetLevelParams(Params, kw_only=True):
    """The least level a client wants to see (handshake era)."""

    level: LogLevel


class ListenFilter(Model, kw_only=True):
    """Which changes a subscription wants, or gets (stateless era)."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[Uri] | None = None
    task_ids: list[Name] | None = None


class ListenParams(Params, kw_only=True):
    """What to listen to."""

    notifications: ListenFilter


class AcknowledgedParams(Notice, kw_only=True):
    """What of a subscription the server will honour."""

    notifications: ListenFilter
