"""Logs in with FastMCP's client, calls the tool `who`, and prints what it says: `fastmcp_login.py URL`."""

from __future__ import annotations

import asyncio
import sys
from urllib.parse import parse_qs, urlsplit

import httpx2 as httpx
from fastmcp import Client
from fastmcp.client.auth import OAuth
from mcp.client.auth import AuthorizationCodeResult


class Login(OAuth):
    """Signs in at once, where a person would use a browser."""

    sent_to = ""

    async def redirect_handler(self, authorization_url: str) -> None:
        async with httpx.AsyncClient(trust_env=False) as browser:
            answer = await browser.get(authorization_url, follow_redirects=False)
        self.sent_to = answer.headers["location"]

    async def callback_handler(self):
        found = parse_qs(urlsplit(self.sent_to).query)
        return AuthorizationCodeResult(code=found["code"][0], state=found["state"][0], iss=found.get("iss", [None])[0])


async def main(url: str) -> None:
    async with Client(url, auth=Login(url)) as client:
        answer = await client.call_tool("who", {})
        print(answer.content[0].text)


asyncio.run(main(sys.argv[1]))
