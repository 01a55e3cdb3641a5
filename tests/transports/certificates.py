"""Certificates for the tests: one that vouches for itself, and an authority that signs others."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PEM = serialization.Encoding.PEM


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _usage(*, authority: bool) -> x509.KeyUsage:
    """Return what a key is for; from 3.13 on Python trusts no authority that does not say so."""
    signs = {"key_cert_sign": authority, "crl_sign": authority, "digital_signature": True}
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    return x509.KeyUsage(**signs, **dict.fromkeys(others, False), encipher_only=False, decipher_only=False)


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey, *, authority: bool
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(_usage(authority=authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )


def _write(folder: Path, stem: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, password: str = ""):
    sealing = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    (folder / f"{stem}cert.pem").write_bytes(certificate.public_bytes(PEM))
    (folder / f"{stem}key.pem").write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, sealing))
    return str(folder / f"{stem}cert.pem"), str(folder / f"{stem}key.pem")


def write_certificate(folder: Path, password: str = "") -> tuple[str, str]:
    """Write a certificate for localhost that vouches for itself, and its key; gives the two paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _write(folder, "", _certificate("localhost", key, "localhost", key, authority=True), key, password)


class Authority:
    """Signs certificates."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        own = _certificate(name, self._key, name, self._key, authority=True)
        self.file, _ = _write(folder, f"{name}-", own, self._key)

    def sign(self, name: str) -> tuple[str, str]:
        """Write a certificate for a name, and its key; gives the two paths."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = _certificate(name, key, self._name, self._key, authority=False)
        return _write(self._folder, f"{self._name}-{name}-", signed, key)
