"""A certificate authority that exists for one run of the tests."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


class ServerFiles(NamedTuple):
    """What a server shows and signs with, as paths of PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates; who trusts it names `certificate` in SSL_CERT_FILE."""

    def __init__(self, folder: Path, name: str) -> None:
        self.certificate = folder / f"{name}.pem"
        self._folder, self._name = folder, _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        extensions = [(x509.BasicConstraints(ca=True, path_length=0), True)]
        self._write(self.certificate, self._name, self._key, extensions)

    def sign(self, host: str, days: int = 1) -> ServerFiles:
        """A certificate of this host; negative `days`: it has ended."""
        key = ec.generate_private_key(ec.SECP256R1())
        files = ServerFiles(
            self._folder / f"{self.certificate.stem}-{host}-{days}.pem",
            self._folder / f"{self.certificate.stem}-{host}-{days}.key",
        )
        names = x509.SubjectAlternativeName([_entry_of(host)])
        self._write(files.certificate, _named(host), key, [(names, False)], days)
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        return files

    def _write(
        self,
        path: Path,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        extensions: list[tuple[x509.ExtensionType, bool]],
        days: int = 1,
    ) -> None:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 9 * DAY)
            .not_valid_after(now + days * DAY)
        )
        for extension, is_critical in extensions:
            builder = builder.add_extension(extension, critical=is_critical)
        signed = builder.sign(self._key, hashes.SHA256())
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _entry_of(host: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    return x509.DNSName(host)
