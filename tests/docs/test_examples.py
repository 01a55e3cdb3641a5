"""The examples run as real processes and say what they should."""

from __future__ import annotations

from pathlib import Path

import doc_pages
import pytest

EXAMPLES = doc_pages.PROJECT / "examples"

SAYS = {
    "hello_client.py": [
        "protocol: 2026-07-28",
        "tools: add",
        "1 + 2 = 3",
        "refused: Invalid arguments for the tool add",
    ],
    "asking.py": [
        "the handler was entered 1 time(s), the card charged 1 time(s)",
        "the handler was entered 3 time(s), the card charged 1 time(s)",
    ],
    # PROG-07: long work tells how far it is.
    "long_job.py": [
        "counted to 3; was told: at 1, at 2, at 3",
        "called off",
        "too slow",
        "the task ended with 5",
    ],
    "changes.py": ["written in the handshake era", "written in the stateless era"],
    "over_http.py": [
        "protocol 2025-11-25; booked Rome: row 12, window (receipt-Rome-12); packed map; packed hat",
        "protocol 2026-07-28; booked Oslo: row 12, window (receipt-Oslo-12); packed map; packed hat",
    ],
    # OTHT-05: a tool that proxies a remote service.
    "remote_service.py": ["Oslo: clear, 21 degrees", "refused: there is no forecast for ../admin"],
    # SAMP-05: a model provider behind the handler.
    "model_provider.py": ["parrot-1: A poem about rain! A poem about rain!"],
    # RSRC-14: a resource that watches files.
    "watched_files.py": ["notes://today.txt has changed: sunshine"],
    "tour.py": [
        "over stdio, protocol 2025-11-25",
        "over stdio, protocol 2026-07-28",
        "Rome: row 12, window",
        "both generations at once",
        "Done: one server, one client",
    ],
}
ARGUMENTS = {"tour.py": ["200"]}
SERVERS = {"hello_server.py", "demo_server.py"}
TESTED = {path.name.removeprefix("test_") for path in (doc_pages.PROJECT / "tests" / "examples").glob("test_*.py")}
"""Programs with arguments, which have tests of their own."""


def test_every_example_is_run_and_listed():
    files = {path.name for path in EXAMPLES.glob("*.py")}
    assert files == {*SAYS, *SERVERS, *TESTED}
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [name for name in files if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", SAYS)
def test_an_example_ends_well_and_says_what_it_should(name: str, tmp_path: Path):
    done = doc_pages.run([str(EXAMPLES / name), *ARGUMENTS.get(name, ())], tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line for line in SAYS[name] if line not in done.stdout] == []
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_an_example_server_ends_when_its_input_ends(name: str, tmp_path: Path):
    done = doc_pages.run([str(EXAMPLES / name)], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


FEATURES = {
    "tools": "@app.tool",
    "structured results": "structured_content",
    "tools that are made of others": "transformed(",
    "resources": "@app.resource(",
    "templates": '@app.resource("notes://{name}")',
    "subscriptions": "client.subscribe(",
    "prompts": "@app.prompt",
    "completions": "client.complete(",
    "progress": "ctx.report_progress(",
    "cancelling": "job.cancel()",
    "logs": "ctx.info(",
    "sampling": "ctx.sample(",
    "elicitation": "ctx.elicit(",
    "questions": "ctx.ask(",
    "roots": "ctx.list_roots(",
    "tasks": "client.start_task(",
    "pages of lists": "page_size=",
    "changes of lists": "add_tool(",
    "files, images and sounds": "Image(",
    "streams": "yield ",
    "state of a session": "ctx.state",
    "lifespans": "lifespan=",
    "dependencies": "Depends(",
    "middleware": "Middleware)",
    "mounting": ".mount(",
    "who sees what": "app.disable(tags=",
    "skills": ".skills(",
    "MCP Apps": ".page(",
    "a web API as tools": "from_fastapi(",
    "routes of one's own": "custom_route(",
    "HTTP": "Http(",
    "ASGI": ".asgi(",
    "coming back after a loss": "Reconnect(",
    "both protocol generations": "ERAS",
    "errors": "ToolError(",
}
"""What a server and a client can do, and the words of an example that show it."""


@pytest.mark.parametrize("feature", FEATURES)
def test_every_feature_is_shown_by_an_example_that_is_run(feature: str):
    """TEST-09"""
    run = [EXAMPLES / name for name in (*SAYS, *SERVERS)] + sorted((EXAMPLES / "recipes").glob("*.py"))
    assert any(FEATURES[feature] in path.read_text(encoding="utf-8") for path in run)
