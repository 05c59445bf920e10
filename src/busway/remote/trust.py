"""TLS as commands and jobs see it: whose certificates they trust, and what to do if they do not.

Python trusts the machine's authorities, or those of the file that SSL_CERT_FILE names. A broker
that is not trusted now is not trusted in a minute either, so these errors are not those of a
connection that may be tried again.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from busway.remote.connection import Endpoint

VARIABLE = "SSL_CERT_FILE"
NO_TLS = ("HANDSHAKE_FAILURE", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""What OpenSSL says of a server that speaks none (D-32)."""


class UntrustedError(Exception):
    """No TLS with this server, and what to do about it."""


@contextmanager
def trust(endpoint: Endpoint) -> Iterator[ssl.SSLContext]:
    """What to dial with; errors of trust are told as such."""
    try:
        yield ssl.create_default_context()
    except ssl.SSLCertVerificationError as error:
        raise UntrustedError(
            f"The certificate of {endpoint.host}:{endpoint.port} is not trusted: "
            f"{error.verify_message}. Name the file of its authority in the variable {VARIABLE}; "
            "'busway serve --tls' keeps it as tls/authority.pem in its data folder."
        ) from error
    except ssl.SSLError as error:
        if not any(each in (error.reason or "") for each in NO_TLS):
            raise
        raise UntrustedError(
            f"{endpoint.host}:{endpoint.port} speaks no TLS. Start the server with --tls, or use "
            "its connection string with UseDevelopmentEmulator=true."
        ) from error


def dial(endpoint: Endpoint, wait_s: float) -> http.client.HTTPConnection:
    """A connection for requests. With TLS it is made here, where it can be said why not."""
    if not endpoint.tls:
        return http.client.HTTPConnection(endpoint.host, endpoint.http_port, timeout=wait_s)
    with trust(endpoint) as context:
        connection = http.client.HTTPSConnection(
            endpoint.host, endpoint.http_port, timeout=wait_s, context=context
        )
        connection.connect()
        return connection
