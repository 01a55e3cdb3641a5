"""Certificates: whom we trust, who we are, and errors that say what to do."""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.identity.verifier import Certificate
from ferrule.settings.option import FilePath

HTTP2 = "h2"
"""Its name in the handshake (RFC 9113 §3.2)."""


class TlsSettings(Struct, frozen=True):
    """Whom to trust, and who we are."""

    verify: bool = True
    ca: FilePath | None = None
    """A file of certificates to trust instead of the system's."""
    cert: FilePath | tuple[FilePath, FilePath] | None = None
    """Our own certificate with its key, in one PEM file or two."""

    def context(self) -> ssl.SSLContext:
        """Make the context; raises SetupError when a file cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as reason:
            raise SetupError(f"cannot use the authorities of ca={self.ca!r}: {reason}") from None
        if self.cert is not None:
            try:
                certificate, key = self.cert if isinstance(self.cert, tuple | list) else (self.cert, None)
                # Without a password here OpenSSL would ask the terminal for one.
                context.load_cert_chain(certificate, key, "")
            except (OSError, ValueError) as reason:
                raise SetupError(
                    f"cannot use cert={self.cert!r}: {reason}; it is one PEM file with our certificate and its key, "
                    "or two, and the key has no password"
                ) from None
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class Certified(Protocol):
    """The certificate of a listener; its settings are one."""

    @property
    def certificate(self) -> FilePath | None:
        """A PEM file; None: connections are plain."""

    @property
    def private_key(self) -> FilePath | None:
        """The PEM file of its key, where the certificate's does not hold it."""

    @property
    def private_key_password(self) -> str | None:
        """What the key is sealed with."""


def server_context(settings: Certified, name: str) -> ssl.SSLContext | None:
    """Load the certificate; None where connections are plain, SetupError where the files are no good."""
    if settings.certificate is None:
        if settings.private_key is not None:
            raise SetupError(f"{name}: a private_key without a certificate; give both")
        return None
    for option in ("certificate", "private_key"):
        path = getattr(settings, option)
        if path is not None and not Path(path).is_file():
            raise SetupError(f"{name}: the {option} {path!r} is not a file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # RFC 8996 §4, §5: nobody speaks TLS 1.0 and 1.1 any more.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password here OpenSSL would ask the terminal for one.
        password = settings.private_key_password or ""
        context.load_cert_chain(settings.certificate, settings.private_key, password)
    except (OSError, ValueError) as error:
        keys = settings.private_key or settings.certificate
        raise SetupError(f"{name}: cannot use {settings.certificate!r} with the key of {keys!r}: {error}") from error
    return context


def ask_for_certificates(context: ssl.SSLContext, authorities: FilePath) -> None:
    """Serve only peers whose certificate one of the authorities signed; raises SetupError."""
    try:
        context.load_verify_locations(cafile=authorities)
    except OSError as error:
        raise SetupError(f"cannot use the authorities of {authorities!r}: {error}") from error
    context.verify_mode = ssl.CERT_REQUIRED


def peer_certificate(stream: asyncio.BaseTransport) -> Certificate | None:
    """Return the certificate that was asked for and proved; None without one."""
    details = stream.get_extra_info("peercert")
    if not details:
        return None
    secured = stream.get_extra_info("ssl_object")
    if secured is not None:
        der = secured.getpeercert(binary_form=True)
    else:
        der = None
    return Certificate(details, der or b"")


def chosen_protocol(transport: asyncio.BaseTransport) -> str:
    """Return what the peers agreed to speak (ALPN, RFC 7301); empty where they did not, or without TLS."""
    tls = transport.get_extra_info("ssl_object")
    if tls is None:
        return ""
    return tls.selected_alpn_protocol() or ""


def explain(error: OSError) -> str:
    """Return in one sentence why a connection failed, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}); "
            "give the file of the authority that signed it as ca=…"
        )
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error}); does the server speak TLS at this port?"
    if isinstance(error, socket.gaierror):
        return "there is no such host; is its name spelled right?"
    if isinstance(error, ConnectionRefusedError) or _is_everywhere(errno.ECONNREFUSED, error):
        return "the connection was refused; does the server run, and at this port?"
    if isinstance(error, ConnectionResetError):
        return "the connection was reset; is the server full, or does it speak another protocol than the URL says?"
    if error.errno == errno.EADDRNOTAVAIL or _is_everywhere(errno.EADDRNOTAVAIL, error):
        return (
            "this machine has no free port for another connection there, or no such address; "
            "close connections, or raise net.ipv4.ip_local_port_range"
        )
    return f"{error.strerror or error}"


def _is_everywhere(number: int, error: OSError) -> bool:
    """Return whether a host was tried at several addresses, which fail as one error without a number, and all so."""
    if error.errno is None:
        numbers = re.findall(r"\[Errno (\d+)\]", str(error))
    else:
        numbers = []
    return bool(numbers) and set(numbers) == {str(number)}
