"""Which headers are properties of a message, and which belong to HTTP (http.md section 9).

A property whose name is HTTP's, or that no header can have as its name, travels in one header of
its own: `BuswayProperties`, a JSON object. Nothing that a message holds becomes a header that
means something to a client or a proxy.
"""

from __future__ import annotations

import re

BROKER_PROPERTIES = "BrokerProperties"
OTHER_PROPERTIES = "BuswayProperties"

RESERVED = frozenset(
    [
        "age",
        "allow",
        "alt-svc",
        "alt-used",
        "authorization",
        "brokerproperties",
        "buswayproperties",
        "cache-control",
        "clear-site-data",
        "connection",
        "cookie",
        "correlation-context",
        "date",
        "dnt",
        "early-data",
        "etag",
        "expect",
        "expect-ct",
        "expires",
        "forwarded",
        "from",
        "host",
        "http2-settings",
        "keep-alive",
        "last-modified",
        "link",
        "location",
        "max-forwards",
        "nel",
        "origin",
        "pragma",
        "range",
        "ratelimit",
        "referer",
        "refresh",
        "report-to",
        "request-id",
        "retry-after",
        "save-data",
        "server",
        "servicebusdlqsupplementaryauthorization",
        "servicebussupplementaryauthorization",
        "sourcemap",
        "te",
        "timing-allow-origin",
        "trailer",
        "traceparent",
        "tracestate",
        "transfer-encoding",
        "upgrade",
        "upgrade-insecure-requests",
        "user-agent",
        "vary",
        "via",
        "warning",
        "www-authenticate",
        "x-request-id",
        "x-real-ip",
    ]
)
RESERVED_PREFIXES = (
    "accept",
    "access-control-",
    "content-",
    "cross-origin-",
    "if-",
    "proxy-",
    "sec-",
    "set-cookie",
    "strict-transport-",
    "x-forwarded-",
    "x-ms-",
)

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def is_reserved(name: str) -> bool:
    lowered = name.lower()
    return lowered in RESERVED or lowered.startswith(RESERVED_PREFIXES)


def can_be_header(name: str) -> bool:
    return _TOKEN.fullmatch(name) is not None and not is_reserved(name)
