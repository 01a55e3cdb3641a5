"""Client certificates: as the only proof of who calls, and as what a token is bound to (RFC 8705 §3)."""

from __future__ import annotations

import hmac
import math
import ssl
from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping
from hashlib import sha256
from urllib.parse import unquote

from msgspec import structs

from ferrule.auth.jose import BadToken
from ferrule.auth.server.trusted_proxies import TrustedProxies
from ferrule.errors import SetupError, Unauthorized
from ferrule.identity.principal import Principal, require_scopes
from ferrule.identity.verifier import RequestFacts, Verdict, Verifier, certified

LONGEST_CERTIFICATE = 16 * 1024


class ClientCertificates(Verifier):
    """Lets in who has a certificate that the listener's `client_ca` signed; `names` says whom, with which scopes."""

    keep = math.inf

    def __init__(self, names: Collection[str] | Mapping[str, Collection[str]] | None = None) -> None:
        if isinstance(names, str):
            raise SetupError("ClientCertificates: names= is a list of common names, or scopes by name")
        self._names = names

    def verify(self, facts: RequestFacts) -> Verdict:
        """Return the principal a certificate names."""
        if facts.certificate is None:
            return Unauthorized("Unauthorized: a client certificate is needed", headers={})
        verdict = certified(facts.certificate)
        if not isinstance(verdict, Principal) or not self._is_known(verdict.subject):
            return Unauthorized("Unauthorized: the client certificate names nobody who is known here", headers={})
        scopes: Collection[str] = ()
        if isinstance(self._names, Mapping):
            scopes = require_scopes(self._names[verdict.subject], "names")
        return structs.replace(verdict, scopes=frozenset(scopes), method="certificate")

    def _is_known(self, name: str) -> bool:
        return self._names is None or name in self._names


class CertificateProof:
    """Finds the certificate a client has proved to own: with TLS here, or at a proxy we trust."""

    def __init__(self, header: str | None, proxies: TrustedProxies) -> None:
        self._header = header
        self._proxies = proxies
        if header is not None and not proxies:
            raise SetupError("certificate_header= without trusted_proxies=: anybody could send that header")

    def of(self, facts: RequestFacts) -> bytes | None:
        """Return the certificate (DER) of a request's sender."""
        if facts.certificate is not None:
            return facts.certificate.der or None
        if self._header is None or not self._proxies.has(facts.address):
            return None
        return _read(facts.headers.get(self._header, ""))


def _read(header: str) -> bytes | None:
    if not header or len(header) > LONGEST_CERTIFICATE:
        return None
    try:
        return ssl.PEM_cert_to_DER_cert(unquote(header).strip())
    except ValueError:
        return None


def require_certificate(thumbprint: object, certificate: bytes | None) -> None:
    """Raise BadToken unless a certificate is the one a token is bound to, by its `x5t#S256`."""
    if certificate is None:
        raise BadToken("the token is bound to a certificate, and none was shown")
    shown = urlsafe_b64encode(sha256(certificate).digest()).rstrip(b"=")
    if not isinstance(thumbprint, str) or not hmac.compare_digest(thumbprint.encode("utf-8", "replace"), shown):
        raise BadToken("the token is bound to another certificate")
