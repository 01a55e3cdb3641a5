"""The HTTP sketch: the least a Python HTTP server can do for a connection or a session and still have read the request.

A protocol of uvloop's, heads read by httptools, bodies by msgspec; each answer is written once and has its id put in. A
session is an entry of a dict. No checks, no eras, no limits, no cancelling. It is not a peer but a yardstick: what the
product costs more than this for a connection, a session's life or an idle session is what its features cost.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets

import msgspec
import uvloop
from httptools import HttpRequestParser

STATIC_URI = "bench://static"
HEAD = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b"
SESSION = b"Mcp-Session-Id: %b\r\n"
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
DELETED = b"HTTP/1.1 204 No Content\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
UPDATED = b'data: {"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"%b"}}\n\n'
SERVER = b'"capabilities":{"tools":{},"resources":{"subscribe":true}},"serverInfo":{"name":"http-sketch","version":"0"}'
CALLED = b'{"content":[{"type":"text","text":"%b"}],"structuredContent":{"result":%b}}'
RESULTS = {
    "initialize": b'{"protocolVersion":"2025-11-25",%b}' % SERVER,
    "server/discover": b'{"supportedVersions":["2026-07-28"],%b}' % SERVER,
    "resources/subscribe": b"{}",
    "add": CALLED % (b"42", b"42"),
    "bump": CALLED % (b"ok", b'"ok"'),
}
ANSWER = b'{"jsonrpc":"2.0","id":%d,"result":%b}'


class Params(msgspec.Struct, gc=False):
    """The parameters a call has; other methods' parameters are not looked at."""

    name: str = ""


class Incoming(msgspec.Struct, gc=False):
    """A request or a notification."""

    method: str
    id: int | None = None
    params: Params | None = None


decode = msgspec.json.Decoder(Incoming).decode

sessions: dict[bytes, Incoming] = {}
streams: set[Connection] = set()


class Connection(asyncio.Protocol):
    """Answers each request where it is whole."""

    __slots__ = ("body", "parser", "session", "transport")

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Read requests from now on."""
        self.transport = transport
        self.parser = HttpRequestParser(self)
        self.session = b""
        self.body = b""

    def data_received(self, data: bytes) -> None:
        """Let httptools find the requests."""
        self.parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the stream that was open."""
        streams.discard(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Notice which session a request belongs to."""
        if name == b"Mcp-Session-Id":
            self.session = value

    def on_body(self, body: bytes) -> None:
        """Collect the body."""
        self.body += body

    def on_message_complete(self) -> None:
        """Answer."""
        session = self.session
        body = self.body
        method = self.parser.get_method()
        self.session = b""
        self.body = b""
        if method == b"POST":
            self.post(decode(body))
        elif method == b"GET":
            streams.add(self)
            self.transport.write(STREAM)
        else:
            sessions.pop(session, None)
            self.transport.write(DELETED)

    def post(self, message: Incoming) -> None:
        """Answer a request; a notification is accepted."""
        method = message.method
        head = b""
        if message.id is None:
            self.transport.write(ACCEPTED)
            return
        if method == "initialize":
            identity = secrets.token_urlsafe(24).encode()
            sessions[identity] = message
            head = SESSION % identity
        elif method == "tools/call" and message.params is not None:
            method = message.params.name
        if method == "bump":
            tell_all()
        body = ANSWER % (message.id, RESULTS[method])
        self.transport.write(HEAD % (b"200 OK", head, len(body), body))


def tell_all() -> None:
    """Tell every stream that the resource changed."""
    event = UPDATED % STATIC_URI.encode()
    for stream in streams:
        stream.transport.write(b"%x\r\n%b\r\n" % (len(event), event))


async def serve(port: int) -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=["http"], default="http")
    parser.add_argument("--mode", default="stateless")
    parser.add_argument("--tools", type=int, default=0)
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))
