"""The constant answer: what any Python server on uvloop costs before it has read anything but a request's id.

It is not a peer but a yardstick. Whatever it is asked, it answers as if `add` had been called.
"""

import asyncio

import uvloop
from catalogue import options

BODY = b'{"jsonrpc":"2.0","id":%b,"result":{"content":[{"type":"text","text":"42"}],"structuredContent":{"result":42}}}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: one\r\nContent-Length: %d\r\n\r\n%b"
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
ID = b'"id":'


class Constant(asyncio.Protocol):
    """Answers each request as soon as it comes; none is longer than one read."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Keep the way back."""
        self.write = transport.write

    def data_received(self, data: bytes) -> None:
        """Put the id into the answer."""
        _, found, rest = data.partition(ID)
        if not found:
            self.write(ACCEPTED)
            return
        body = BODY % rest[: rest.index(b",")]
        self.write(HEAD % (len(body), body))


async def main() -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(Constant, "127.0.0.1", options().port, backlog=4096)
    await server.serve_forever()


uvloop.run(main())
