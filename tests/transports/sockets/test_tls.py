"""Certificates of either side, with clear errors."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from certificates import write_certificate

from ferrule.errors import SetupError
from ferrule.transports.http.settings import EngineSettings
from ferrule.transports.sockets.tls import TlsSettings, explain, server_context


def test_without_a_certificate_there_is_no_tls() -> None:
    assert server_context(EngineSettings(), "http") is None
    with pytest.raises(SetupError, match="without a certificate"):
        server_context(EngineSettings(private_key="key.pem"), "http")


def test_a_certificate_and_its_key_are_loaded(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    assert server_context(EngineSettings(certificate=certificate, private_key=key), "http") is not None


def test_a_sealed_key_needs_its_password(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "secret")
    settings = EngineSettings(certificate=certificate, private_key=key, private_key_password="secret")
    assert server_context(settings, "http") is not None
    for wrong in (None, "guess"):
        with pytest.raises(SetupError, match="cannot use"):
            server_context(EngineSettings(certificate=certificate, private_key=key, private_key_password=wrong), "http")


def test_files_that_are_no_good_are_named(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("rubbish")
    with pytest.raises(SetupError, match=r"the certificate '.*missing.pem' is not a file"):
        server_context(EngineSettings(certificate=str(tmp_path / "missing.pem"), private_key=key), "http")
    with pytest.raises(SetupError, match=r"the private_key '.*missing.pem' is not a file"):
        server_context(EngineSettings(certificate=certificate, private_key=str(tmp_path / "missing.pem")), "http")
    with pytest.raises(SetupError, match=r"cannot use '.*rubbish.pem'"):
        server_context(EngineSettings(certificate=str(rubbish), private_key=key), "http")
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(SetupError, match=r"cannot use '.*cert.pem'"):
        server_context(EngineSettings(certificate=write_certificate(other)[0], private_key=key), "http")


def test_the_file_of_a_client_that_is_no_good_is_named(tmp_path: Path) -> None:
    good = write_certificate(tmp_path)
    (tmp_path / "sealed").mkdir()
    sealed, sealed_key = write_certificate(tmp_path / "sealed", "secret")
    assert TlsSettings(ca=good[0], cert=good).context() is not None
    with pytest.raises(SetupError, match=r"the authorities of ca='nowhere\.pem'"):
        TlsSettings(ca="nowhere.pem", cert=good).context()
    with pytest.raises(SetupError, match=r"cannot use cert='.*cert.pem': .* one PEM file with our certificate"):
        TlsSettings(cert=good[0]).context()
    # OpenSSL must not stop here to ask the terminal for the password.
    with pytest.raises(SetupError, match=r"the key has no password"):
        TlsSettings(cert=(sealed, sealed_key)).context()


def test_a_host_that_refuses_at_each_of_its_addresses_is_told_as_one_that_refuses() -> None:
    number = errno.ECONNREFUSED
    tried = f"Multiple exceptions: [Errno {number}] Connect call failed ('::1', 1), [Errno {number}] ('127.0.0.1', 1)"
    assert explain(OSError(tried)).startswith("the connection was refused")
    assert explain(OSError(tried.replace(str(number), "113", 1))) != explain(OSError(tried))
