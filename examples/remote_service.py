"""A tool that proxies a remote service over HTTP: its address is fixed, its time and its answers are bounded."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import quote

from ferrule import Client, Server, ToolError

TIMEOUT = 5.0
LONGEST_ANSWER = 64 * 1024

app = Server("weather")
service = "https://weather.example.com"


def fetch(url: str) -> bytes:
    """Return what the service answers, and no more of it than is sensible."""
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        body: bytes = answer.read(LONGEST_ANSWER + 1)
    if len(body) > LONGEST_ANSWER:
        raise ToolError("the weather service answers too much")
    return body


@app.tool
def forecast(city: str) -> str:
    """Ask the weather service; a plain function runs in a thread and holds up nobody."""
    try:
        answer = json.loads(fetch(f"{service}/forecast/{quote(city, safe='')}"))
    except urllib.error.HTTPError as reason:
        # The model is told what it can do something about, and nothing of the service itself.
        raise ToolError(f"there is no forecast for {city}") from reason
    return f"{city}: {answer['sky']}, {answer['degrees']} degrees"


class Weather(BaseHTTPRequestHandler):
    """Stands for the service."""

    def do_GET(self) -> None:
        """Know the weather of one city."""
        found = self.path == "/forecast/Oslo"
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"sky": "clear", "degrees": 21}).encode() if found else b"")

    def log_message(self, format: str, *values: object) -> None:  # noqa: A002
        """Log nothing."""


async def main() -> None:
    """Ask for two cities, of which the service knows one."""
    global service
    remote = HTTPServer(("127.0.0.1", 0), Weather)
    service = f"http://127.0.0.1:{remote.server_port}"
    threading.Thread(target=remote.serve_forever, daemon=True).start()
    async with Client(app) as client:
        print((await client.call_tool("forecast", {"city": "Oslo"})).data)
        missing = await client.call_tool("forecast", {"city": "../admin"}, raise_on_error=False)
        print(f"refused: {missing.text}")
    remote.shutdown()
    remote.server_close()


if __name__ == "__main__":
    asyncio.run(main())
