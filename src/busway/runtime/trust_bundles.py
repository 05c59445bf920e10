"""Bundles beside an authority: the public ones that this machine trusts, and ours after them.

A variable such as SSL_CERT_FILE replaces what a process trusts. With a bundle it still trusts the
rest of the world.
"""

from __future__ import annotations

import re
import ssl
import warnings
from pathlib import Path

from busway.runtime.certificates import JAVA_PASSWORD, CertificateFolder, write

PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)


def public_authorities() -> str:
    """Those of the system, or of certifi where the system has none; empty if nobody knows any."""
    paths = ssl.get_default_verify_paths()
    for place in (paths.openssl_cafile, paths.cafile, "/etc/ssl/certs/ca-certificates.crt"):
        if place and Path(place).is_file():
            return Path(place).read_text(encoding="utf-8", errors="replace")
    try:
        import certifi
    except ImportError:
        return ""
    return Path(certifi.where()).read_text(encoding="utf-8")


def make_bundles(files: CertificateFolder) -> tuple[Path, Path]:
    """`bundle.pem`, and `bundle.p12` for Java. Raises `OSError`."""
    own = files.authority.read_text(encoding="utf-8")
    public = public_authorities()
    pem, java = files.path / "bundle.pem", files.path / "bundle.p12"
    write(pem, f"{public.rstrip()}\n{own}".lstrip().encode())
    write(java, _for_java([*PEM.findall(public), own]))
    return pem, java


def _for_java(texts: list[str]) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    named = []
    for number, text in enumerate(texts):
        try:
            with warnings.catch_warnings():  # some old roots are not quite as the standard wants
                warnings.simplefilter("ignore")
                certificate = x509.load_pem_x509_certificate(text.encode())
        except ValueError:
            continue
        named.append(pkcs12.PKCS12Certificate(certificate, f"authority-{number}".encode()))
    password = serialization.BestAvailableEncryption(JAVA_PASSWORD.encode())
    return pkcs12.serialize_java_truststore(named, password)
