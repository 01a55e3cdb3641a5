"""Logs in with the official Python SDK 2.x, calls the tool `who`, and prints what it says: `mcp2_login.py URL`."""

from __future__ import annotations

import asyncio
import sys
from urllib.parse import parse_qs, urlsplit

import httpx2 as httpx
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata


class Memory:
    """Keeps tokens while the program runs."""

    def __init__(self) -> None:
        self.tokens = self.client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info


class Person:
    """Signs in at once, and brings back where the browser was sent."""

    def __init__(self) -> None:
        self.sent_to = ""

    async def open(self, url: str) -> None:
        async with httpx.AsyncClient(trust_env=False) as browser:
            answer = await browser.get(url, follow_redirects=False)
        self.sent_to = answer.headers["location"]

    async def come_back(self) -> AuthorizationCodeResult:
        found = parse_qs(urlsplit(self.sent_to).query)
        return AuthorizationCodeResult(code=found["code"][0], state=found["state"][0], iss=found.get("iss", [None])[0])


async def main(url: str) -> None:
    person = Person()
    metadata = OAuthClientMetadata(client_name="peer", redirect_uris=["http://localhost:3030/callback"])
    auth = OAuthClientProvider(url, metadata, Memory(), person.open, person.come_back)
    async with (
        httpx.AsyncClient(auth=auth, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        answer = await client.call_tool("who", {})
        print(answer.content[0].text)


asyncio.run(main(sys.argv[1]))
