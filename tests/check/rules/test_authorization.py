"""A server that lets nobody in without a token is judged by how it says where to get one."""

from __future__ import annotations

from checked import check, findings, named
from http_server import Answered, Asked, HttpServer, Spoilt

METADATA = b'{"resource": "http://127.0.0.1/mcp", "authorization_servers": ["https://login.example"]}'
BEARER = 'Bearer resource_metadata="/.well-known/oauth-protected-resource/mcp"'


def guarded(challenge: str, metadata: bytes) -> Spoilt:
    def spoil(asked: Asked, answered: Answered) -> Answered:
        if asked.method == "GET":
            return Answered(200, metadata, {"Content-Type": "application/json"})
        return Answered(401, headers={"WWW-Authenticate": challenge} if challenge else {})

    return spoil


async def test_a_challenge_with_metadata_has_no_findings() -> None:
    async with HttpServer(guarded(BEARER, METADATA)).on_port() as url:
        report = await check(url)
    assert findings(report) == []
    assert report.count("pass") == 2
    assert "--header" in report.eras[0].reason


async def test_a_challenge_that_leads_nowhere_is_found() -> None:
    async with HttpServer(guarded("", b'{"resource": 1}')).on_port() as url:
        report = await check(url)
    assert named(report) == ["warn authorization/challenge", "fail authorization/metadata"]
    assert "authorization_servers" in report.findings[1].seen
