"""Our HTTP+SSE pair, used by the clients of the other SDKs.

Proves: TEST-08
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from typing import Any

import matrix
import peer_programs
import pytest

pytestmark = pytest.mark.interop

OLDEST = "2024-11-05"
SINCE_THE_OLDEST = (
    *("connect", "protocol", "server", "ping", "tools", "resources", "templates", "prompts", "echo", "large"),
    *("parallel", "unknown_tool", "fail", "progress", "cancel", "sample", "roots", "read_static", "read_binary"),
    *("read_template", "read_missing", "prompt", "completion", "subscribe", "log", "list_changed"),
)
"""What the first revision had already; the others came later."""

CASES = [
    pytest.param(matrix.Run(peer, matrix.OURS, version), feature, id=f"{peer}-{version}-{feature}")
    for peer in ("mcp1", "ts1")
    for version in (OLDEST, matrix.OLDER, matrix.HANDSHAKE)
    for feature in (SINCE_THE_OLDEST if version == OLDEST else matrix.FEATURES)
]


@functools.cache
def observed(run: matrix.Run) -> dict[str, Any]:
    """Serve once, let the client walk through the features, and give what it observed."""
    served = [sys.executable, "-u", str(peer_programs.HERE / "ferrule_sse_server.py")]
    with subprocess.Popen(served, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
            command = [part.replace("_client.", "_sse_client.") for part in peer_programs.program(run.client, "client")]
            client = peer_programs.start([*command, *run.arguments, "--", url])
            try:
                output, complaints = client.communicate(timeout=peer_programs.RUN_SECONDS)
            finally:
                peer_programs.end_group(client)
        finally:
            server.kill()
    return json.loads(output) if output else {"connect": complaints[-2000:]}


@pytest.mark.parametrize(("run", "feature"), CASES)
def test_their_client_with_our_pair(run: matrix.Run, feature: str) -> None:
    """SSE-1, SSE-2, SSE-3."""
    reason = peer_programs.missing(run.peer) or matrix.gap(run, feature)
    if reason is not None:
        pytest.skip(reason)
    assert observed(run).get(feature, "not observed") == matrix.expected(run, feature)
