"""TLS: certificates with clear errors, and requests over it."""

from __future__ import annotations

import asyncio
import datetime
import logging
import ssl
from pathlib import Path

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ferrule.errors import SetupError
from ferrule.transports.http.engine.binding import tls_context
from ferrule.transports.http.engine.engine import Engine
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.transports.http.settings import EngineSettings


def write_certificate(folder: Path, password: str | None = None) -> tuple[str, str]:
    """Write a certificate for localhost and its key; gives the two paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    sealing = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, sealing))
    return str(folder / "cert.pem"), str(folder / "key.pem")


def test_without_a_certificate_there_is_no_tls() -> None:
    assert tls_context(EngineSettings()) is None
    with pytest.raises(SetupError, match="without a certificate"):
        tls_context(EngineSettings(private_key="key.pem"))


def test_a_certificate_and_its_key_are_loaded(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    assert tls_context(EngineSettings(certificate=certificate, private_key=key)) is not None


def test_a_sealed_key_needs_its_password(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "secret")
    settings = EngineSettings(certificate=certificate, private_key=key, private_key_password="secret")
    assert tls_context(settings) is not None
    for wrong in (None, "guess"):
        with pytest.raises(SetupError, match="cannot use"):
            tls_context(EngineSettings(certificate=certificate, private_key=key, private_key_password=wrong))


def test_files_that_are_no_good_are_named(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("rubbish")
    with pytest.raises(SetupError, match=r"the certificate '.*missing.pem' is not a file"):
        tls_context(EngineSettings(certificate=str(tmp_path / "missing.pem"), private_key=key))
    with pytest.raises(SetupError, match=r"the private_key '.*missing.pem' is not a file"):
        tls_context(EngineSettings(certificate=certificate, private_key=str(tmp_path / "missing.pem")))
    with pytest.raises(SetupError, match=r"cannot use '.*rubbish.pem'"):
        tls_context(EngineSettings(certificate=str(rubbish), private_key=key))
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(SetupError, match=r"cannot use '.*cert.pem'"):
        tls_context(EngineSettings(certificate=write_certificate(other)[0], private_key=key))


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_requests_are_served_over_tls(runner: object, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificate, key = write_certificate(tmp_path)
    seen: list[HttpRequest] = []

    def handle(request: HttpRequest, responder: Responder) -> None:
        seen.append(request)
        responder.reply(200, b"", b"hello")

    async def main() -> None:
        settings = EngineSettings(port=0, certificate=certificate, private_key=key, head_timeout=1.0)
        engine = Engine(handle, settings)
        await engine.start()
        trusting = ssl.create_default_context(cafile=certificate)
        trusting.set_alpn_protocols(["h2", "http/1.1"])
        reader, writer = await asyncio.open_connection(*engine.address, ssl=trusting, server_hostname="localhost")
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        for _ in range(3):
            writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n" + b"a" * 200_000)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert await reader.readexactly(5) == b"hello"
        # Rubbish is refused, and the connection ends.
        writer.write(b"rubbish\r\n\r\n")
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n"), 2)) == b"HTTP/1.1 400 Bad Request\r\n"
        writer.close()
        # Whoever does not speak TLS is let go without a word in the log.
        plain, plain_writer = await asyncio.open_connection(*engine.address)
        plain_writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"HTTP" not in await asyncio.wait_for(plain.read(), 3)
        plain_writer.close()
        silent, silent_writer = await asyncio.open_connection(*engine.address)
        assert await asyncio.wait_for(silent.read(), 3) == b""
        silent_writer.close()
        await engine.drain(1.0)

    with caplog.at_level(logging.WARNING):
        runner(main())  # type: ignore[operator]
    assert [(request.secure, len(request.body)) for request in seen] == [(True, 200_000)] * 3
    assert [record.getMessage() for record in caplog.records] == []
