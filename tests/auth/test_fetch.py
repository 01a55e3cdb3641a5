"""Fetching from servers that are slow, huge, circular or hostile, over real sockets with TLS.

What stands for the public internet listens on 127.0.0.2, which the rules of these tests allow; the trap on 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import errno
import gzip
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority

from ferrule.auth.address import AddressRefused, AddressRules
from ferrule.auth.fetch import MAX_SIZE, Fetcher, FetchFailed
from ferrule.transports.sockets.tls import TlsSettings

NAME = "as.example.com"
PIECE = bytes(64 * 1024)
PUBLIC, TRAP = "127.0.0.2", "127.0.0.1"
PATIENCE = 100.0
GOOD = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{"issuer": 1}'


def sockets_of_one_port() -> tuple[socket.socket, socket.socket]:
    """Listen at one port of both addresses; a port that is free at one may be somebody else's at the other."""
    while True:
        public = socket.create_server((PUBLIC, 0))
        try:
            return public, socket.create_server((TRAP, public.getsockname()[1]))
        except OSError as error:
            public.close()
            if error.errno != errno.EADDRINUSE:
                raise


class World:
    """A server at a name, a trap beside it, and a resolver that a test tells what to say."""

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.answers: list[bytes] = []
        """What the server says to each request; the last one goes on."""
        self.requests: list[str] = []
        self.trapped = 0
        self.asked: list[str] = []
        self.addresses: list[list[str]] = [[PUBLIC]]
        """What the resolver says each time; the last one goes on."""
        self.port = 0
        self.pause = 0.0
        self.piece = b""
        self.repeats = 0
        """What it says after each answer, and how often."""
        self.sent = 0

    def fetcher(self, **options: Any) -> Fetcher:
        """Return a fetcher that may ask 127.0.0.2 and asks our resolver."""
        rules = options.pop("rules", AddressRules(private=[f"{PUBLIC}/32"]))
        tls = TlsSettings(ca=self.authority.file)
        options.setdefault("timeout", PATIENCE)
        return Fetcher(rules, tls=tls, resolve=self.resolve, **options)

    def url(self, path: str = "/x", name: str = NAME) -> str:
        """Return a URL of the server."""
        return f"https://{name}:{self.port}{path}"

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Say the next addresses."""
        self.asked.append(host)
        return self.addresses.pop(0) if len(self.addresses) > 1 else self.addresses[0]

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head.decode())
            said = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            await asyncio.sleep(self.pause)
            writer.write(said)
            for _ in range(self.repeats):
                writer.write(self.piece)
                await writer.drain()
                self.sent += len(self.piece)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def trap(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Count who comes."""
        self.trapped += 1
        writer.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> tuple[str, str]:
    return authority.sign(NAME)


@pytest.fixture
def world(authority: Authority, certificate: tuple[str, str]) -> Callable[..., Any]:
    @asynccontextmanager
    async def opened(*answers: bytes) -> AsyncIterator[World]:
        made = World(authority)
        made.answers = list(answers)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)
        public, trapped = sockets_of_one_port()
        made.port = public.getsockname()[1]
        server = await asyncio.start_server(made.answer, sock=public, ssl=context)
        trap = await asyncio.start_server(made.trap, sock=trapped)
        try:
            yield made
        finally:
            for each in (server, trap):
                each.close()
                await each.wait_closed()

    return opened


def redirect(where: str, status: int = 302) -> bytes:
    """Return an answer that redirects."""
    return f"HTTP/1.1 {status} Found\r\nlocation: {where}\r\ncontent-length: 0\r\n\r\n".encode()


async def test_the_address_that_was_judged_is_the_one_that_is_connected(world: Any) -> None:
    """AUT-06: the name is only for TLS and Host; no system resolver knows it."""
    async with world(GOOD) as there:
        answer = await there.fetcher().get(there.url())
        assert (answer.status, answer.document()) == (200, {"issuer": 1})
        assert f"host: {NAME}:{there.port}" in there.requests[0]
        assert there.asked == [NAME]


async def test_a_name_whose_addresses_change_is_asked_once_and_never_leads_into_the_trap(world: Any) -> None:
    """AUT-06: DNS that flips between the check and the connection."""
    async with world(GOOD) as there:
        there.addresses = [[PUBLIC], [TRAP]]
        fetcher = there.fetcher()
        assert (await fetcher.get(there.url())).status == 200
        with pytest.raises(AddressRefused):
            await fetcher.get(there.url())
        assert there.trapped == 0


@pytest.mark.parametrize("addresses", [[TRAP], [PUBLIC, TRAP], [TRAP, PUBLIC], ["::1"], ["::ffff:127.0.0.1"]])
async def test_a_name_that_leads_to_this_machine_is_refused_before_it_is_connected(
    world: Any, addresses: list[str]
) -> None:
    """AUT-06."""
    async with world(GOOD) as there:
        there.addresses = [addresses]
        with pytest.raises(AddressRefused):
            await there.fetcher().get(there.url())
        assert (there.trapped, there.requests) == (0, [])


@pytest.mark.parametrize(
    "where",
    [
        "http://127.0.0.1:{port}/",
        "https://127.0.0.1:{port}/",
        "https://localhost:{port}/",
        "http://169.254.169.254/latest/meta-data/",
        "https://[::ffff:127.0.0.1]:{port}/",
        "https://0.0.0.0:{port}/",
        "https://2130706433:{port}/",
        "https://[fd00:ec2::254]/",
        "https://other.example.com:{port}/",
        "http://as.example.com:{port}/",
        "//127.0.0.1:{port}/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://[",
        "https://as.example.com:{port}@127.0.0.1:{port}/",
    ],
)
async def test_a_redirect_to_where_nothing_may_be_fetched_is_refused(world: Any, where: str) -> None:
    """AUT-06, SEC-6: each redirect is judged anew."""
    async with world(b"") as there:
        there.answers = [redirect(where.format(port=there.port))]
        there.addresses = [[PUBLIC], [TRAP]]
        with pytest.raises(AddressRefused):
            await there.fetcher().get(there.url())
        assert (there.trapped, len(there.requests)) == (0, 1)


@pytest.mark.parametrize("where", ["https://other.example.com:{port}/", "https://as.example.com/"])
async def test_a_redirect_to_another_origin_is_not_followed_though_it_may_be_asked(world: Any, where: str) -> None:
    """AUT-06."""
    async with world(b"", GOOD) as there:
        there.answers = [redirect(where.format(port=there.port)), GOOD]
        with pytest.raises(AddressRefused, match="another origin"):
            await there.fetcher().get(there.url())
        assert (there.asked, len(there.requests)) == ([NAME], 1)


async def test_a_redirect_within_the_origin_is_resolved_and_judged_anew(world: Any) -> None:
    """AUT-06."""
    async with world(redirect("/next"), GOOD) as there:
        there.addresses = [[PUBLIC], [TRAP]]
        with pytest.raises(AddressRefused):
            await there.fetcher().get(there.url())
        assert there.trapped == 0


async def test_a_redirect_within_the_origin_is_followed_without_credentials(world: Any) -> None:
    async with world(redirect("/next?a=b", 307), GOOD) as there:
        answer = await there.fetcher().get(there.url(), {"authorization": "Bearer secret"})
        assert answer.document() == {"issuer": 1}
        assert answer.url == there.url("/next")
        assert "authorization: Bearer secret" in there.requests[0]
        assert "authorization" not in there.requests[1]
        assert there.requests[1].startswith("GET /next?a=b HTTP/1.1\r\n")


@pytest.mark.parametrize(("redirects", "requests"), [(2, 3), (0, 1)])
async def test_redirects_that_do_not_end_are_given_up(world: Any, redirects: int, requests: int) -> None:
    async with world(redirect("/x")) as there:
        with pytest.raises(FetchFailed, match="again and again"):
            await there.fetcher().get(there.url(), redirects=redirects)
        assert len(there.requests) == requests


async def test_a_redirect_to_nowhere_is_given_up(world: Any) -> None:
    async with world(b"HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n") as there:
        with pytest.raises(FetchFailed, match="nowhere"):
            await there.fetcher().get(there.url())
        assert len(there.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_post_is_never_redirected(world: Any, status: int) -> None:
    """SEC-6: what a token endpoint is sent goes nowhere else."""
    async with world(redirect("/next", status)) as there:
        with pytest.raises(FetchFailed, match="redirects a POST"):
            await there.fetcher().post_form(there.url(), {"code": "secret"})
        assert len(there.requests) == 1


# -- answers that are too much


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"content-length: 104857600", PIECE),
        (b"connection: close", PIECE),
        (b"transfer-encoding: chunked", b"10000\r\n" + PIECE + b"\r\n"),
    ],
    ids=["length", "no length", "chunks"],
)
async def test_of_100_mb_only_the_beginning_is_read(world: Any, head: bytes, piece: bytes) -> None:
    """AUT-06."""
    async with world(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n") as there:
        there.piece, there.repeats = piece, 1600
        with pytest.raises(FetchFailed, match=f"longer than {MAX_SIZE}"):
            await there.fetcher().get(there.url())
        # What the sockets of this machine hold counts as sent.
        assert there.sent < 16 * 1024 * 1024


async def test_an_answer_of_exactly_the_limit_is_read(world: Any) -> None:
    body = b'"' + b"a" * (MAX_SIZE - 2) + b'"'
    async with world(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body) as there:
        assert len((await there.fetcher().get(there.url())).body) == MAX_SIZE
    async with world(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n " % (len(body) + 1) + body) as there:
        with pytest.raises(FetchFailed, match="longer"):
            await there.fetcher().get(there.url())


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "deflate", "br", "identity, gzip", "gzip, identity"])
async def test_a_compressed_answer_is_refused_unread(world: Any, encoding: str) -> None:
    """A bomb of 10 MB in 10 KB is never unpacked."""
    bomb = gzip.compress(b" " * 10_000_000)
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: {encoding}\r\ncontent-length: {len(bomb)}\r\n\r\n".encode()
    async with world(head + bomb) as there:
        with pytest.raises(FetchFailed, match="compressed"):
            await there.fetcher().get(there.url())
        assert "accept-encoding: identity" in there.requests[0]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"x-%d: y\r\n" % n for n in range(300)) + b"\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello",
        b"220 smtp.example.com ESMTP\r\n",
        b"",
    ],
    ids=["headers", "long header", "two lengths", "cut short", "other protocol", "nothing"],
)
async def test_an_answer_that_is_no_http_is_refused(world: Any, answer: bytes) -> None:
    async with world(answer) as there:
        with pytest.raises(FetchFailed):
            await there.fetcher(timeout=5.0).get(there.url())


# -- time


@pytest.mark.parametrize("verb", ["get", "post_form"])
async def test_a_server_that_does_not_answer_is_given_up(world: Any, verb: str) -> None:
    async with world(GOOD) as there:
        there.pause = 0.5
        fetcher = there.fetcher(timeout=0.1)
        with pytest.raises(FetchFailed, match=r"did not answer within 0\.1 s"):
            await (fetcher.get(there.url()) if verb == "get" else fetcher.post_form(there.url(), {}))


async def test_redirects_and_slow_parts_share_one_time(world: Any) -> None:
    async with world(redirect("/a"), redirect("/b"), GOOD) as there:
        there.pause = 0.15
        with pytest.raises(FetchFailed, match="did not answer"):
            await there.fetcher(timeout=0.35).get(there.url())


async def test_a_resolver_that_hangs_is_given_up(world: Any) -> None:
    async def hang(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(60)
        return []

    fetcher = Fetcher(AddressRules(), resolve=hang, timeout=0.1)
    with pytest.raises(FetchFailed, match="did not answer"):
        await fetcher.get("https://as.example.com/")


# -- the rest


async def test_a_certificate_of_another_name_is_refused(world: Any) -> None:
    async with world(GOOD) as there:
        with pytest.raises(FetchFailed, match="certificate"):
            await there.fetcher().get(there.url(name="other.example.com"))
        assert there.requests == []


@pytest.mark.parametrize("name", ["h" * 64 + ".example", "a..example"])
async def test_a_name_that_no_host_can_have_is_told_like_one_nobody_has(name: str) -> None:
    """The system's resolver does not fail there as it does elsewhere."""
    with pytest.raises(FetchFailed, match="no host of this name"):
        await Fetcher(AddressRules()).get(f"https://{name}/x")


async def test_a_name_nobody_knows_and_a_port_nobody_listens_on_are_told(world: Any) -> None:
    async with world(GOOD) as there:
        there.addresses = [[]]
        with pytest.raises(FetchFailed, match="no host of this name"):
            await there.fetcher().get(there.url())
        there.addresses = [["127.0.0.2"]]
        there.port, good = 1, there.port
        with pytest.raises(FetchFailed, match="refused"):
            await there.fetcher().get(there.url())
        there.port = good


async def test_the_next_address_is_tried_where_one_is_dead(world: Any) -> None:
    async with world(GOOD) as there:
        there.addresses = [["127.0.0.3", PUBLIC]]
        rules = AddressRules(private=["127.0.0.2/31"])
        assert (await there.fetcher(rules=rules).get(there.url())).status == 200


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'"x"', b"", b"[" * 60_000, b'{"a": 1} x', b"\xff"])
async def test_what_is_no_json_object_is_no_document(world: Any, body: bytes) -> None:
    async with world(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body) as there:
        answer = await there.fetcher().get(there.url("/x?secret=1"))
        with pytest.raises(FetchFailed) as caught:
            answer.document()
        assert "secret" not in str(caught.value)


async def test_forms_and_json_are_posted_whole(world: Any, tmp_path: Path) -> None:
    async with world(GOOD) as there:
        await there.fetcher().post_form(there.url(), {"a": "b c", "d": "ü&"}, {"authorization": "Basic x"})
        assert there.requests[0].startswith("POST /x HTTP/1.1\r\n")
        assert "content-type: application/x-www-form-urlencoded" in there.requests[0]
        assert f"content-length: {len('a=b+c&d=%C3%BC%26')}" in there.requests[0]
        await there.fetcher().post_json(there.url(), {"a": [1]})
        assert "content-length: 9" in there.requests[1]
