"""Messages of a prompt, written in one word each."""

from __future__ import annotations

from typing import Any


class Message(dict[str, Any]):
    """One message of a prompt: a text, a content block, a picture, or a list of them, and who says it."""

    def __init__(self, content: Any, role: str = "user") -> None:
        super().__init__(role=role, content=content)

    @property
    def role(self) -> str:
        """Who says it: `user` or `assistant`."""
        return str(self["role"])

    @property
    def content(self) -> Any:
        """What is said."""
        return self["content"]


class UserMessage(Message):
    """What the user says."""

    def __init__(self, content: Any) -> None:
        super().__init__(content, "user")


class AssistantMessage(Message):
    """What the assistant says."""

    def __init__(self, content: Any) -> None:
        super().__init__(content, "assistant")
