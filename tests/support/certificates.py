"""An authority of one's own, and certificates for loopback that it has signed, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Certificates:
    """Paths: who signs, what the server shows, what a client shows."""

    authority: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


def make(folder: Path) -> Certificates:
    """Make all of them in ``folder``."""
    found = Certificates(
        *(folder / f"{name}.pem" for name in ("ca", "server", "server-key", "client", "key"))
    )
    authority_key = ec.generate_private_key(ec.SECP256R1())
    name = _name("authority of the tests")
    authority = (
        _builder(name, name, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, SHA256())
    )
    found.authority.write_bytes(authority.public_bytes(Encoding.PEM))
    for who, path, key_path in (
        ("server", found.server, found.server_key),
        ("client", found.client, found.client_key),
    ):
        key = ec.generate_private_key(ec.SECP256R1())
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        signed = (
            _builder(_name(who), name, key)
            .add_extension(x509.SubjectAlternativeName([loopback]), critical=False)
            .sign(authority_key, SHA256())
        )
        path.write_bytes(signed.public_bytes(Encoding.PEM))
        key_path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return found


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
    )
