"""Balancer: a TCP balancer that gives each connection to the next node; with `each_request`, each request too."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from types import TracebackType
from typing import Self

LONGEST_HEAD = 64 * 1024


class Balancer:
    """Stands before several nodes, and takes turns."""

    def __init__(self, ports: Sequence[int], *, each_request: bool = False, port: int = 0) -> None:
        self.ports = list(ports)
        """Where the nodes are; may be changed while it runs."""
        self._each_request = each_request
        self._turn = itertools.count()
        self._port = port
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.connections = 0
        self._flowing = asyncio.Event()
        self._flowing.set()

    def freeze(self) -> None:
        """Let nothing through, and say nothing."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Let everything through again."""
        self._flowing.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=LONGEST_HEAD)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.sleep(0)

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/mcp"

    def cut(self) -> None:
        """Lose every connection."""
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        node: asyncio.StreamWriter | None = None
        try:
            head = b""
            if self._each_request:
                head = await reader.readuntil(b"\r\n\r\n")
                # The node closes the connection after its answer, so the next request comes on another.
                head = head[:-2] + b"Connection: close\r\n\r\n"
            answers, node = await self._connect()
            self._open.add(node)
            node.write(head)
            await asyncio.wait(
                [asyncio.ensure_future(self._pipe(reader, node)), asyncio.ensure_future(self._pipe(answers, writer))],
                return_when=asyncio.FIRST_COMPLETED,
            )
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            for each in (writer, node):
                if each is not None:
                    self._open.discard(each)
                    each.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the next node that can be reached."""
        for _ in range(len(self.ports) - 1):
            with contextlib.suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", self._next())
        return await asyncio.open_connection("127.0.0.1", self._next())

    def _next(self) -> int:
        return self.ports[next(self._turn) % len(self.ports)]

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(64 * 1024):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()


async def main() -> None:
    """Stand before nodes until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--to", type=int, nargs="+", required=True)
    options = parser.parse_args()
    async with Balancer(options.to, port=options.port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
