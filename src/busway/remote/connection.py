"""How commands and jobs reach a broker: a connection string in, signed requests out.

The key stays in the process that was given it. What travels to others, as to Spark's executors, is
a `Pass`: a signature for one entity that runs out (`Credentials.pass_for`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from busway.gateway import auth

VARIABLE = "BUSWAY_CONNECTION_STRING"
PASS_LIFE_S = 24 * 3600
HTTP_PORT, HTTPS_PORT = 80, 443
PLAIN_PORT, TLS_PORT = 5672, 5671
"""What a connection string without a port means; every port of a server speaks HTTP (D-32)."""


AZURE_HOSTS = (
    ".servicebus.windows.net",
    ".servicebus.usgovcloudapi.net",
    ".servicebus.chinacloudapi.cn",
)
"""Ends of the names of real namespaces, which serve HTTP on a port of its own."""


class ConnectionStringError(Exception):
    """What is wrong with it, without showing it: it has a key in it."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    host: str
    port: int
    tls: bool = False

    @property
    def is_azure(self) -> bool:
        return self.host.lower().endswith(AZURE_HOSTS)

    @property
    def http_port(self) -> int:
        """Every port of ours speaks HTTP as well (D-32); the one of the real service does not."""
        return HTTPS_PORT if self.is_azure and self.port == TLS_PORT else self.port

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.http_port}"


@dataclass(frozen=True, slots=True)
class Pass:
    """What a request needs: where to, and a signature that opens one entity for a while."""

    endpoint: Endpoint
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Credentials:
    endpoint: Endpoint
    rule: str
    key: str = field(repr=False)

    @property
    def connection_string(self) -> str:
        """As `read` reads it and the broker prints it."""
        emulator = "" if self.endpoint.tls else "UseDevelopmentEmulator=true;"
        return (
            f"Endpoint=sb://{self.endpoint.host}:{self.endpoint.port};"
            f"SharedAccessKeyName={self.rule};SharedAccessKey={self.key};{emulator}"
        )

    def pass_for(self, entity: str, life_s: int = PASS_LIFE_S) -> Pass:
        """For an entity and all below it; empty for the whole namespace."""
        resource = f"sb://{self.endpoint.host}/{entity}"
        token = auth.write(resource, self.rule, self.key, int(time.time()) + life_s)
        return Pass(self.endpoint, token)


def read(text: str, http_endpoint: str | None = None) -> Credentials:
    """A connection string as the broker prints it.

    Its port serves HTTP as well (D-32); `http_endpoint` names another one. Plain HTTP if it says
    `UseDevelopmentEmulator=true`, as for the SDKs; TLS otherwise.
    """
    parts: dict[str, str] = {}
    for part in text.strip().split(";"):
        name, _, value = part.partition("=")
        if name.strip():
            parts[name.strip().lower()] = value.strip()
    missing = [
        name
        for name in ("Endpoint", "SharedAccessKeyName", "SharedAccessKey")
        if not parts.get(name.lower())
    ]
    if missing:
        raise ConnectionStringError(
            f"The connection string is not one: it has no {missing[0]}. It is the line that "
            "'busway connection-string' prints: Endpoint=sb://...;SharedAccessKeyName=...;SharedAccessKey=..."
        )
    plain = parts.get("usedevelopmentemulator", "").lower() == "true"
    endpoint = _endpoint(parts["endpoint"], PLAIN_PORT if plain else TLS_PORT, tls=not plain)
    if endpoint is None:
        raise ConnectionStringError(
            "The connection string is not one: its Endpoint names no host. It is like "
            "Endpoint=sb://localhost:5672."
        )
    if http_endpoint is not None:
        tls = http_endpoint.lower().startswith("https:")
        endpoint = _endpoint(http_endpoint, HTTPS_PORT if tls else HTTP_PORT, tls=tls)
        if endpoint is None:
            raise ConnectionStringError(
                f"'{http_endpoint}' is no endpoint. Write for example http://localhost:5300."
            )
    return Credentials(endpoint, parts["sharedaccesskeyname"], parts["sharedaccesskey"])


def _endpoint(text: str, usual_port: int, *, tls: bool) -> Endpoint | None:
    try:
        parsed = urlsplit(text if "://" in text else f"//{text}")
        host, port = parsed.hostname, parsed.port
    except ValueError:
        return None
    return Endpoint(host, port or usual_port, tls) if host else None


def found(source: str | None, environ: Mapping[str, str] | None = None) -> str:
    """The connection string from where `source` says: `env:NAME` or `file:PATH`."""
    environ = os.environ if environ is None else environ
    kind, _, place = (source or f"env:{VARIABLE}").partition(":")
    match kind:
        case "env":
            text = environ.get(place, "")
            if not text:
                raise ConnectionStringError(
                    f"The variable {place} is not set where Spark runs. Set it to the connection "
                    "string that 'busway connection-string' prints, before Spark is started; or "
                    "put that into a file, and say so with credentialsFrom=file:PATH."
                )
            return text
        case "file":
            try:
                return Path(place).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise ConnectionStringError(
                    f"The connection string cannot be read from {place}: {error.strerror}."
                ) from error
    raise ConnectionStringError(f"'{source}' is neither env:NAME nor file:PATH.")
