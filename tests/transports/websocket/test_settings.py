"""The options of WebSockets."""

from __future__ import annotations

from typing import Any

import pytest

from ferrule.errors import SetupError
from ferrule.settings.option import read
from ferrule.transports.websocket.settings import WebSocketOptions, WebSocketSettings


def test_the_defaults_are_those_we_promise() -> None:
    """WEBS-02, WSK-06."""
    settings = WebSocketSettings()
    assert (settings.path, settings.max_message_size, settings.max_connections) == ("/mcp/ws", 16_777_216, 1000)
    assert (settings.validate_utf8, settings.strict_delimiter_check, settings.accept_binary) == (True, False, False)
    assert (settings.frame_buffer_size, settings.backpressure_timeout) == (102_400, 5.0)
    assert (settings.ping_interval, settings.pong_timeout, settings.fragment_timeout) == (30.0, 10.0, 30.0)
    assert (settings.close_timeout, settings.fragment_timeout_code, settings.compression) == (10.0, 1009, False)
    assert WebSocketOptions().connect_timeout == 5.0


@pytest.mark.parametrize("wrong", [{"path": "ws"}, {"max_connections": 0}, {"pong_timeout": -1.0}, {"colour": "red"}])
def test_what_cannot_work_is_refused_before_anything_is_served(wrong: dict[str, Any]) -> None:
    with pytest.raises(SetupError, match=next(iter(wrong))):
        read(WebSocketSettings, wrong, "ws")
