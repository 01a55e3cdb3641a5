"""A proxy that takes requests over HTTP/1.1 and sends each on over HTTP/2: the suites speak HTTP/1.1 only.

Usage: python tests/conformance/http2_proxy.py --port PORT --to PORT
"""

from __future__ import annotations

import argparse
import asyncio

import httpx

from ferrule.transports.http.engine.engine import Engine
from ferrule.transports.http.message import HttpRequest, Responder, header_lines
from ferrule.transports.http.settings import EngineSettings

OF_CONNECTIONS = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"te"})
"""Fields of one connection, which are not sent on (RFC 9110 §7.6.1)."""
OF_ANSWERS = frozenset({"content-length", "date", "server"})
"""Fields that the proxy's own engine writes."""


class Proxy:
    """Sends requests on, each in a task and on a connection of its own."""

    def __init__(self, to: int) -> None:
        self._to = f"http://127.0.0.1:{to}"
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, request: HttpRequest, responder: Responder) -> None:
        """Send a request on; whoever goes away before the answer came cancels it."""
        task = asyncio.ensure_future(self._send_on(request, responder))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def lost() -> None:
            task.cancel()

        responder.watch(lost)

    async def _send_on(self, request: HttpRequest, responder: Responder) -> None:
        headers = [(name, value) for name, value in request.headers.items() if name not in OF_CONNECTIONS]
        target = request.path + (f"?{request.query}" if request.query else "")
        # A connection each: on one that they share, an answer waits until every silent stream before it was looked at.
        client = httpx.AsyncClient(base_url=self._to, http1=False, http2=True, verify=False, timeout=None)
        sent = client.stream(request.method, target, headers=headers, content=request.body)
        try:
            async with client, sent as answer:
                assert answer.http_version == "HTTP/2"
                lines = header_lines({name: value for name, value in answer.headers.items() if name not in OF_ANSWERS})
                if answer.headers.get("content-type", "").startswith("text/event-stream"):
                    responder.begin(answer.status_code, lines)
                    async for part in answer.aiter_raw():
                        responder.write(part)
                    responder.finish()
                else:
                    responder.reply(answer.status_code, lines, await answer.aread())
        except httpx.HTTPError as error:
            print(f"failed on {request.method} {target}: {error!r}", flush=True)
            responder.abort()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--to", type=int, required=True)
    options = parser.parse_args()
    engine = Engine(Proxy(options.to).handle, EngineSettings(host="localhost", port=options.port, http2=False))
    await engine.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
