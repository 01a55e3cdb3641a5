"""How a client waits for a server that a busy machine may take its time to start."""

from __future__ import annotations

from typing import Any

PATIENT: dict[str, Any] = {"probe_timeout": 60.0, "request_timeout": 60.0, "ping_timeout": 60.0}
