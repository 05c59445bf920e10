"""Certificates for a broker of one's own: an authority on this machine, and what it signs.

| file | is |
|---|---|
| `authority.pem` | what clients are told to trust; made once, so that it need not be told again |
| `authority.p12` | the same for Java, with the password that Java's own has |
| `authority.key` | signs server certificates; only its owner can read it |
| `server.pem`, `server.key` | what `busway serve` shows to clients, for the names that were given |

This file owns what is in them. It is imported when there is one to make or to look at (D-33).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
"""In every certificate, whatever else is asked for."""
AUTHORITY_LASTS = timedelta(days=3650)
SERVER_LASTS = timedelta(days=825)
"""The longest that all clients take, Apple's included."""
RENEWED_BEFORE = timedelta(days=30)
CLOCK_ERROR = timedelta(days=1)
"""Machines that share a certificate need not agree on the time."""

JAVA_PASSWORD = "changeit"
"""Of a file in which nothing is secret; Java does not read one without."""

PRIVATE = 0o600
PRIVATE_FOLDER = 0o700
COMMON_NAME_MAX = 64
"""RFC 5280, appendix A; names are checked against the alternative names only."""


class CertificateError(Exception):
    """One sentence: what is wrong with which file, and what to do about it."""


@dataclass(frozen=True, slots=True)
class CertificateFolder:
    path: Path

    @property
    def authority(self) -> Path:
        return self.path / "authority.pem"

    @property
    def authority_key(self) -> Path:
        return self.path / "authority.key"

    @property
    def authority_for_java(self) -> Path:
        return self.path / "authority.p12"

    @property
    def server(self) -> Path:
        return self.path / "server.pem"

    @property
    def server_key(self) -> Path:
        return self.path / "server.key"

    def make(self, names: Iterable[str], now: datetime | None = None) -> None:
        """A server certificate for these names and the local ones, by the authority that is here.

        The authority is made if there is none. Raises `CertificateError`.
        """
        now = now or datetime.now(UTC)
        alternatives = list(dict.fromkeys(map(alternative_name, [*names, *LOCAL_NAMES])))
        try:
            self.path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            if not self.authority.exists() and not self.authority_key.exists():
                self._make_authority(now)
            authority, key = self._read_authority(now)
            write(self.authority_for_java, for_java(authority))
            self._make_server(alternatives, authority, key, now)
        except OSError as error:
            raise CertificateError(
                f"{error.filename or self.path}: {error.strerror}. Choose another folder, or give "
                "yourself the right to read and write in this one."
            ) from error

    def is_good_for(self, names: Iterable[str], now: datetime | None = None) -> bool:
        """Whether there is a server certificate for these names that lasts for a while."""
        files = (self.authority, self.server, self.server_key)
        if not all(file.exists() for file in files):
            return False
        certificate = read_certificate(self.server)
        wanted = {str(alternative_name(name).value) for name in [*names, *LOCAL_NAMES]}
        now = now or datetime.now(UTC)
        return (
            wanted <= set(names_of(certificate))
            and certificate.not_valid_after_utc - now > RENEWED_BEFORE
        )

    def _make_authority(self, now: datetime) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = common_name(f"Busway authority of {socket.gethostname()}")
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            _builder(name, name, key.public_key(), now, AUTHORITY_LASTS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
            .add_extension(identifier, critical=False)
            .sign(key, hashes.SHA256())
        )
        write_private(self.authority_key, key)
        write(self.authority, certificate.public_bytes(serialization.Encoding.PEM))

    def _read_authority(self, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        certificate = read_certificate(self.authority)
        data = self.authority_key.read_bytes()
        try:
            key = serialization.load_pem_private_key(data, password=None)
        except (ValueError, TypeError) as error:
            raise CertificateError(f"{self.authority_key}: is no private key: {error}.") from error
        if (
            not isinstance(key, ec.EllipticCurvePrivateKey)
            or key.public_key() != certificate.public_key()
        ):
            raise CertificateError(
                f"{self.authority_key} is not the key of {self.authority}. Delete both to have a "
                "new authority made; clients must then be told to trust that one."
            )
        if certificate.not_valid_after_utc <= now:
            raise CertificateError(
                f"{self.authority} expired on {certificate.not_valid_after_utc:%Y-%m-%d}. Delete "
                f"it and {self.authority_key.name} to have a new authority made; clients must then "
                "be told to trust that one."
            )
        return certificate, key

    def _make_server(
        self,
        alternatives: list[x509.GeneralName],
        authority: x509.Certificate,
        authority_key: ec.EllipticCurvePrivateKey,
        now: datetime,
    ) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = common_name(str(alternatives[0].value))
        lasts = min(SERVER_LASTS, authority.not_valid_after_utc - now)
        identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
        certificate = (
            _builder(subject, authority.subject, key.public_key(), now, lasts)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(issuer, critical=False)
            .sign(authority_key, hashes.SHA256())
        )
        write_private(self.server_key, key)
        write(self.server, certificate.public_bytes(serialization.Encoding.PEM))


def alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name.strip("[]")))
    except ValueError:
        pass
    try:
        ascii_name = name.encode("idna").decode().lower()
    except UnicodeError:
        ascii_name = ""
    if not ascii_name or any(sign in ascii_name for sign in " /:"):
        raise CertificateError(
            f"'{name}' is neither a host name nor an address. Give names without scheme, port or "
            "path, such as broker.example.com."
        )
    return x509.DNSName(ascii_name)


def can_be_named(name: str) -> bool:
    try:
        alternative_name(name)
    except CertificateError:
        return False
    return True


def read_certificate(path: Path) -> x509.Certificate:
    """The first one of the file. Raises `CertificateError` if there is none."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError:
        raise CertificateError(f"{path}: there is no such file.") from None
    except OSError as error:
        raise CertificateError(f"{path}: cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise CertificateError(f"{path}: is no certificate in PEM format.") from error


def names_of(certificate: x509.Certificate) -> list[str]:
    """The names and addresses that it is for."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names]


def for_java(authority: x509.Certificate) -> bytes:
    password = serialization.BestAvailableEncryption(JAVA_PASSWORD.encode())
    named = pkcs12.PKCS12Certificate(authority, b"busway")
    return pkcs12.serialize_java_truststore([named], password)


def common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:COMMON_NAME_MAX])])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    lasts: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_ERROR)
        .not_valid_after(now + lasts)
    )


def _usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def write(path: Path, data: bytes, mode: int = 0o644) -> None:
    """As a whole or not at all, and never readable by more than `mode` says."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    draft.replace(path)


def write_private(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    data = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    write(path, data, PRIVATE)
