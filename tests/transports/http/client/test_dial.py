"""TLS and proxies, with real certificates and a real, small proxy."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ferrule import Client
from ferrule.errors import ConnectFailed, SetupError

sys.path.insert(0, str(Path(__file__).resolve().parent))

from scripted import Hosted, Site


def certificate(folder: Path, name: str) -> Path:
    """Write a certificate for this machine that signs itself, with its key, into one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / f"{name}.pem"
    file.write_bytes(private + built.public_bytes(serialization.Encoding.PEM))
    return file


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(certificate(tmp_path_factory.mktemp("tls"), "ours"))


def server_context(file: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


async def works(url: str, **http: Any) -> None:
    async with Client(url, http=http) as client:
        results = await asyncio.gather(*(client.call_tool("t") for _ in range(30)))
        assert [result.text for result in results] == ["done"] * 30


# -- TLS


async def test_tls(ours: str, era: str) -> None:
    """seed:HTTP-21."""
    async with Site(era, tls=server_context(ours)) as site:
        await works(site.url, ca=ours)
        await works(site.url, verify=False)


async def test_a_certificate_nobody_vouches_for_is_refused(ours: str) -> None:
    async with Site(tls=server_context(ours)) as site:
        with pytest.raises(ConnectFailed, match=r"certificate is not trusted .*ca=…"):
            await works(site.url)


async def test_tls_to_a_server_that_has_none() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectFailed, match=r"TLS failed|reset"):
            await works(f"https://127.0.0.1:{port}/mcp", connect_timeout=60)


async def test_a_server_may_want_to_know_our_certificate_too(ours: str) -> None:
    context = server_context(ours)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(ours)
    async with Site(tls=context) as site:
        await works(site.url, ca=ours, cert=ours)


async def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("nothing")
    with pytest.raises(SetupError, match=r"x.pem"):
        await works("https://127.0.0.1:1/", ca=str(tmp_path / "x.pem"))


# -- proxies


class Proxy(Hosted):
    """A forward proxy that takes CONNECT and absolute targets, and notes both."""

    def __init__(self, refuse: bytes = b"") -> None:
        super().__init__()
        self.refuse = refuse
        self.heads: list[str] = []

    @property
    def url(self) -> str:
        return f"http://me:secret@127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head.decode())
        verb, target, _ = head.split(b" ", 2)
        if self.refuse:
            writer.write(self.refuse)
            writer.close()
            return
        if verb == b"CONNECT":
            host, _, port = target.decode().partition(":")
            far_reader, far = await asyncio.open_connection(host, int(port))
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            host, _, port = target.decode().split("/")[2].partition(":")
            far_reader, far = await asyncio.open_connection(host, int(port))
            far.write(head)
        try:
            await asyncio.gather(pump(reader, far), pump(far_reader, writer))
        finally:
            far.transport.abort()
            writer.transport.abort()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def test_a_proxy_gets_whole_urls_of_plain_servers() -> None:
    async with Site() as site, Proxy() as proxy:
        await works(site.url, proxy=proxy.url)
        assert all(seen.target == site.url for seen in site.seen)
        assert {seen.headers["proxy-authorization"] for seen in site.seen} == {"Basic bWU6c2VjcmV0"}
        assert proxy.heads


async def test_a_proxy_is_a_tunnel_to_servers_with_tls(ours: str) -> None:
    async with Site(tls=server_context(ours)) as site, Proxy() as proxy:
        await works(site.url, proxy=proxy.url, ca=ours)
        assert all(head.startswith(f"CONNECT 127.0.0.1:{site.port} HTTP/1.1\r\n") for head in proxy.heads)
        assert all("Proxy-Authorization: Basic bWU6c2VjcmV0\r\n" in head for head in proxy.heads)
        assert {seen.target for seen in site.seen} == {"/mcp"}
        assert not any("proxy-authorization" in seen.headers for seen in site.seen)


async def test_the_environment_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Proxy(b"HTTP/1.1 407 Who are you\r\n\r\n") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(ConnectFailed) as raised:
            await works("https://far.example/mcp")
        assert "refuses with 407 Who are you" in str(raised.value)
        assert "secret" not in str(raised.value)


@pytest.mark.parametrize("refuse", [b"x" * 20_000, b"HTTP/1.1 200 OK\r\n"])
async def test_a_proxy_that_says_nothing_sensible_is_no_way(refuse: bytes) -> None:
    async with Proxy(refuse) as proxy:
        with pytest.raises(ConnectFailed, match="through the proxy"):
            await works("https://far.example/mcp", proxy=proxy.url)


def test_the_same_on_the_loop_most_programs_use(ours: str) -> None:
    async def both() -> None:
        async with Site(tls=server_context(ours)) as site, Proxy() as proxy:
            await works(site.url, ca=ours)
            await works(site.url, ca=ours, proxy=proxy.url)

    uvloop.run(asyncio.wait_for(both(), 60))
