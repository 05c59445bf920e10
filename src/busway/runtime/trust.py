"""How each SDK is told to trust an authority of one's own: what `busway cert` prints.

Checked against the SDKs (http.md 1, amqp.md 1). Python's clients for messages bring their own list
of authorities and listen to no variable.
"""

from __future__ import annotations

from pathlib import Path

from busway.runtime.certificates import (
    JAVA_PASSWORD,
    CertificateFolder,
    names_of,
    read_certificate,
)

VARIABLES = {
    "Python, administration": "REQUESTS_CA_BUNDLE",
    "Python, administration (aio)": "SSL_CERT_FILE",
    "JavaScript": "NODE_EXTRA_CA_CERTS",
    ".NET on Linux, Go": "SSL_CERT_FILE",
}


def variables(authority: Path) -> str:
    """All of them on one line, for a log."""
    return " ".join(f"{name}={authority}" for name in dict.fromkeys(VARIABLES.values()))


def told(files: CertificateFolder) -> str:
    """What was made, and what to do with it."""
    certificate = read_certificate(files.server)
    names = ", ".join(names_of(certificate))
    java = (
        f"-Djavax.net.ssl.trustStore={files.authority_for_java} "
        f"-Djavax.net.ssl.trustStorePassword={JAVA_PASSWORD}"
    )
    rows = [
        ("Python, messages", f'connection_verify="{files.authority}"'),
        *((client, f"export {name}={files.authority}") for client, name in VARIABLES.items()),
        ("Java", f"export JAVA_TOOL_OPTIONS='{java}'"),
    ]
    return "\n".join(
        [
            f"{files.server} is for {names}; it lasts until "
            f"{certificate.not_valid_after_utc:%Y-%m-%d}.",
            "",
            "Start the broker with it:",
            f"  busway serve --tls-cert {files.server} --tls-key {files.server_key}",
            "",
            "Tell clients to trust it:",
            *(f"  {client:30}{how}" for client, how in rows),
        ]
    )
