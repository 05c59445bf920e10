"""Connection strings, as commands and jobs read them."""

from __future__ import annotations

import pytest

from busway.gateway import auth
from busway.remote import connection
from busway.remote.connection import ConnectionStringError, Endpoint

KEY = "SharedAccessKeyName=rule;SharedAccessKey=a-key="
PLAIN = f"Endpoint=sb://localhost:5672;{KEY};UseDevelopmentEmulator=true;"


@pytest.mark.parametrize(
    ("text", "http_endpoint", "endpoint"),
    [
        (PLAIN, None, Endpoint("localhost", 5672)),
        (f"Endpoint=sb://bus;{KEY};UseDevelopmentEmulator=true", None, Endpoint("bus", 5672)),
        (f"Endpoint=sb://bus/;{KEY}", None, Endpoint("bus", 5671, tls=True)),
        (f"endpoint = sb://[::1]:7000 ; {KEY}", None, Endpoint("::1", 7000, tls=True)),
        (PLAIN, "http://other:5300", Endpoint("other", 5300)),
        (PLAIN, "http://other", Endpoint("other", 80)),
        (PLAIN, "https://other", Endpoint("other", 443, tls=True)),
        (PLAIN, "other:5300", Endpoint("other", 5300)),
    ],
)
def test_d_32_a_port_serves_all_and_another_can_be_named(
    text: str, http_endpoint: str | None, endpoint: Endpoint
) -> None:
    found = connection.read(text, http_endpoint)
    assert (found.endpoint, found.rule, found.key) == (endpoint, "rule", "a-key=")


@pytest.mark.parametrize(
    ("text", "http_endpoint", "said"),
    [
        ("nonsense", None, "is not one: it has no Endpoint"),
        ("Endpoint=sb://bus;SharedAccessKeyName=a", None, "it has no SharedAccessKey"),
        (f"Endpoint=sb://;{KEY}", None, "names no host"),
        (f"Endpoint=sb://bus:port;{KEY}", None, "names no host"),
        (PLAIN, "http://", "'http://' is no endpoint"),
    ],
)
def test_what_is_none_is_told_without_its_key(
    text: str, http_endpoint: str | None, said: str
) -> None:
    with pytest.raises(ConnectionStringError, match=said) as caught:
        connection.read(text, http_endpoint)
    assert "a-key" not in str(caught.value)


def test_a_pass_is_for_one_entity_and_shows_no_key() -> None:
    credentials = connection.read(PLAIN)
    allowed = credentials.pass_for("orders/eu")
    assert auth.scope_of(auth.parse(allowed.token).resource).key == "orders/eu"
    assert "a-key" not in repr(credentials) + repr(allowed)
