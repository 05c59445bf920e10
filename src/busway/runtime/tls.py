"""What a node shows to clients that speak TLS, and what is wrong with files that cannot be shown.

Reading a certificate's dates takes a library that `serve` does not load otherwise; it is imported
where TLS is on (D-33).
"""

from __future__ import annotations

import logging
import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from busway.runtime.data_folder import StartError

log = logging.getLogger(__name__)


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Raises `StartError` that says which file is to be put right, and how."""
    from busway.runtime.certificates import CertificateError, names_of, read_certificate

    try:
        shown = read_certificate(certificate)
    except CertificateError as error:
        raise StartError(f"--tls-cert: {error}") from error
    now = datetime.now(UTC)
    if shown.not_valid_after_utc <= now:
        raise StartError(
            f"--tls-cert: {certificate} expired on {shown.not_valid_after_utc:%Y-%m-%d}, and no "
            "client would trust it. Renew it; 'busway cert' makes one for a broker of your own."
        )
    try:
        key.read_bytes()
    except FileNotFoundError:
        raise StartError(f"--tls-key: {key}: there is no such file.") from None
    except OSError as error:
        raise StartError(f"--tls-key: {key}: cannot be read: {error.strerror}.") from error

    def no_password() -> NoReturn:
        raise StartError(
            f"--tls-key: {key} is encrypted, and there is nobody to ask for its password. Store "
            "it without one, readable by its owner only."
        )

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise StartError(
                f"--tls-key: {key} is not the key of {certificate}. Give the two that belong "
                "together."
            ) from error
        raise StartError(f"--tls-key: {key}: is no private key in PEM format.") from error
    names = ", ".join(names_of(shown)) or "no name at all"
    log.info("TLS is on, for %s, until %s", names, f"{shown.not_valid_after_utc:%Y-%m-%d}")
    return context


def own_certificate(folder: Path, names: list[str], *, again: bool = False) -> tuple[Path, Path]:
    """`--tls`: the certificate in the data folder, made or renewed where there is a need; `again`,
    without a word where there is none.

    It is for the machine's own name as well, if that can be in a certificate. Raises `StartError`.
    """
    from busway.runtime import trust
    from busway.runtime.certificates import CertificateError, CertificateFolder, can_be_named

    machine = socket.gethostname()
    if can_be_named(machine):
        names = [*names, machine]
    files = CertificateFolder(folder)
    try:
        if not files.is_good_for(names):
            files.make(names)
            log.info("a certificate was made in %s", folder)
    except CertificateError as error:
        raise StartError(f"--tls: {error}") from error
    if not again:
        log.info("clients trust it with %s", trust.variables(files.authority.resolve()))
    return files.server, files.server_key
