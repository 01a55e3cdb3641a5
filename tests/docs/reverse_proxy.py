"""A reverse proxy that does what a configuration of nginx or Caddy says: the program itself where it is installed.

Where it is not, a stand-in reads the few words of the configurations that our guide uses. It ends TLS, routes by the
beginning of the path, sets headers and passes everything on as it comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from msgspec import Struct

PATIENCE = 20.0


class Route(Struct, frozen=True):
    """What happens with paths that begin in one way."""

    prefix: str
    upstream: str
    replaced_by: str | None
    """What stands for the prefix afterwards; None where the path stays."""
    headers: dict[str, str]


def read_nginx(text: str) -> list[Route]:
    """Read the locations of a server of nginx."""
    assert text.count("{") == text.count("}")
    outer = re.sub(r"location \S+ \{.*?\}", "", text, flags=re.DOTALL)
    routes = []
    for prefix, inside in re.findall(r"location (\S+) \{(.*?)\}", text, re.DOTALL):
        said = outer + inside
        assert "proxy_buffering off;" in said
        assert "proxy_http_version 1.1;" in said
        found = re.search(r"proxy_pass http://([\d.:]+)(/\S*)?;", inside)
        assert found, inside
        headers = dict(re.findall(r"proxy_set_header (\S+) (\S+);", said))
        routes.append(Route(prefix, found[1], found[2], {"Host": found[1], **headers}))
    return routes


def read_caddy(text: str) -> list[Route]:
    """Read the handles of a site of Caddy, or the one thing it does."""
    headers = {"Host": "$host", "X-Forwarded-For": "$proxy_add_x_forwarded_for"}
    routes = []
    for kind, prefix, upstream in re.findall(r"(handle|handle_path) (\S+)\* \{\s*reverse_proxy (\S+)\s*\}", text):
        routes.append(Route(prefix, upstream, "/" if kind == "handle_path" else None, headers))
    if not routes:
        found = re.search(r"reverse_proxy (\S+)", text)
        assert found, text
        routes.append(Route("/", found[1], None, headers))
    return routes


class StandIn:
    """Passes requests on as routes say; one request on each connection."""

    def __init__(self, routes: list[Route]) -> None:
        self._routes = sorted(routes, key=lambda route: -len(route.prefix))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request, and give back what the server answers, as it comes."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ")
            headers = dict(line.split(": ", 1) for line in head[1:] if line)
            by_lower = {name.lower(): value for name, value in headers.items()}
            body = await reader.readexactly(int(by_lower.get("content-length", "0")))
            route = next((each for each in self._routes if path.startswith(each.prefix)), None)
            if route is None:
                writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            else:
                if route.replaced_by is not None:
                    path = route.replaced_by + path.removeprefix(route.prefix)
                sent = self._headers(route, by_lower, writer.get_extra_info("peername")[0])
                lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
                await self._pass(route, "\r\n".join([*lines, "", ""]).encode("latin-1") + body, writer)
        writer.close()

    def _headers(self, route: Route, given: dict[str, str], address: str) -> dict[str, str]:
        variables = {
            "$host": given["host"].partition(":")[0],
            "$proxy_add_x_forwarded_for": ", ".join(filter(None, (given.get("x-forwarded-for"), address))),
        }
        sent = {name: value for name, value in given.items() if name not in ("connection", "keep-alive")}
        for name, value in route.headers.items():
            sent[name.lower()] = variables.get(value, value)
        return {**sent, "connection": "close"}

    async def _pass(self, route: Route, request: bytes, back: asyncio.StreamWriter) -> None:
        host, _, port = route.upstream.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)
        try:
            while data := await reader.read(65536):
                back.write(data)
                await back.drain()
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def proxied(kind: str, text: str, port: int, certificate: str, key: str, folder: Path) -> AsyncIterator[None]:
    """Run a configuration whose addresses fit this machine already, at a port of it."""
    program = shutil.which(kind)
    if program is None:
        routes = read_nginx(text) if kind == "nginx" else read_caddy(text)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, key)
        async with await asyncio.start_server(StandIn(routes).serve, "127.0.0.1", port, ssl=tls):
            yield
        return
    if kind == "nginx":
        paths = [f"{each}_temp_path {folder}/{each};" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")]
        http = f"access_log off; {' '.join(paths)} {text}"
        text = f"daemon off; pid {folder}/pid; error_log stderr crit; events {{}} http {{ {http} }}"
        words = ["-e", "stderr", "-p", str(folder), "-c", str(folder / "proxy.conf")]
    else:
        text = f"{{\n admin off\n auto_https disable_redirects\n}}\n{text}"
        words = ["run", "--adapter", "caddyfile", "--config", str(folder / "proxy.conf")]
    (folder / "proxy.conf").write_text(text)
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(program, *words, cwd=folder, stdout=quiet, stderr=quiet)
    try:
        async with asyncio.timeout(PATIENCE):
            while not await _listens(port):
                assert process.returncode is None, f"{kind} does not take the configuration"
                await asyncio.sleep(0.02)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
