"""Shared access signatures: what opens what (D-34, amqp.md sections 5 and 18)."""

from __future__ import annotations

from urllib.parse import quote, quote_plus

import pytest

from busway.gateway import auth
from busway.gateway.auth import Access, Right
from busway.model.entities import AuthorizationRule
from busway.model.errors import BusError
from busway.model.names import audience_key, host_name

NOW_MS = 1_700_000_000_000
LATER = "1700003600"
HOST = "sb://bus.example.net"


class Rules:
    """A namespace with a root rule, a rule whose name needs encoding, and one rule on `orders`."""

    namespace = {  # noqa: RUF012
        "root": AuthorizationRule("root", ("Manage",), "root-key", "second-root-key"),
        "a+b c/d": AuthorizationRule("a+b c/d", ("Send",), "odd-key"),
    }
    entity = {"send-orders": AuthorizationRule("send-orders", ("Send",), "orders-key")}  # noqa: RUF012

    def namespace_rule(self, name: str) -> AuthorizationRule | None:
        return self.namespace.get(name)

    def entity_rule(self, path: str, name: str) -> tuple[str, AuthorizationRule] | None:
        rule = self.entity.get(name)
        inside = path == "orders" or path.startswith("orders/$")
        return ("Orders", rule) if rule is not None and inside else None


def token(
    resource: str,
    *,
    key: str = "root-key",
    rule: str = "root",
    expiry: str = LATER,
    signed: str = "",
) -> str:
    signature = quote_plus(auth.sign(signed or resource, expiry, key))
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={rule}"


OWN = ("bus.example.net", "localhost", "contoso.servicebus.windows.net")


def own_host(name: str) -> bool:
    return host_name(name) in OWN


def verify(text: str, audience: str = "orders", **options: bool) -> Access:
    return auth.verify(text, audience_key(audience), Rules(), NOW_MS, own_host, **options)


@pytest.mark.parametrize(
    ("resource", "audience"),
    [
        (quote_plus(f"{HOST}/orders"), "orders"),
        (quote(f"{HOST}/orders", safe=""), "orders"),
        (quote_plus(f"{HOST}/orders").lower(), "orders"),
        (quote_plus(f"{HOST}/Orders"), "orders"),
        (quote_plus(f"{HOST}/orders"), "ORDERS"),
        (quote_plus(f"{HOST}/orders/"), "orders"),
        (quote_plus(HOST), "orders"),
        (quote_plus(f"{HOST}/"), "orders"),
        (quote_plus(f"{HOST}:5673/orders"), "orders"),
        (quote_plus("amqps://bus.example.net/orders"), "orders/$DeadLetterQueue"),
        (quote_plus("https://bus.example.net/a/b"), "a/b"),
        (quote_plus("https://bus.example.net/a"), "a/b"),
        (quote_plus("bus.example.net/orders"), "orders"),
        (quote_plus(f"{HOST}/orders/$management"), "orders"),
    ],
)
def test_a_signature_opens_its_path_and_what_is_below(resource: str, audience: str) -> None:
    assert verify(token(resource), audience).scope == audience_key(audience)


@pytest.mark.parametrize(
    ("resource", "audience"),
    [
        (f"{HOST}/orders", "invoices"),
        (f"{HOST}/orders", "orders2"),
        (f"{HOST}/orders/b", "orders"),
        (f"{HOST}/orders", ""),
        # Without a scheme it may be the name of a queue as well as that of a host.
        ("orders", "orders"),
        ("orders", ""),
        ("bus.example.net", "orders"),
        ("bus.example.net:5672", ""),
        ("bus.example.net/", "orders"),
        ("orders/", "orders"),
        ("/orders", "orders"),
        ("bus.example.net/orders", "invoices"),
        # Another host.
        ("sb://other.example.net/", "orders"),
        ("sb://other.example.net/orders", "orders"),
        ("https://bus.example.net.evil.org/orders", "orders"),
        ("https://bus.example.net@evil.org/orders", "orders"),
        ("sb:///orders", "orders"),
        ("other.example.net/orders", "orders"),
        ("sb://other.example.net/sb://bus.example.net/orders", "orders"),
    ],
)
def test_a_signature_opens_nothing_beside_its_path(resource: str, audience: str) -> None:
    with pytest.raises(BusError, match="InvalidAudience"):
        verify(token(quote_plus(resource)), audience)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (token(HOST, key="wrong"), "InvalidSignature"),
        (token(HOST, rule="nobody"), "InvalidSignature"),
        (token(HOST, signed=f"{HOST}/"), "InvalidSignature"),
        (token(HOST, key="odd-key"), "InvalidSignature"),
        (token(HOST, expiry="1699999999"), "ExpiredToken"),
        (token(HOST, expiry="1700000000"), "ExpiredToken"),
        (token(HOST).replace("&se=1700003600", "&se=1700009999"), "InvalidSignature"),
        (token(HOST, expiry="soon"), "MalformedToken"),
        (token(HOST, expiry="-1"), "MalformedToken"),
        (token(HOST, expiry="1_700_003_600"), "MalformedToken"),
        (token(HOST, expiry="9" * 30), "MalformedToken"),
        ("SharedAccessSignature sr=x", "MalformedToken"),
        ("eyJhbGciOi.eyJh.x", "MalformedToken"),
        ("", "MalformedToken"),
        ("SharedAccessSignature " + "x" * 5000, "MalformedToken"),
        ("SharedAccessSignature sr=é&sig=é&se=1700003600&skn=root", "InvalidSignature"),
    ],
)
def test_a_token_that_opens_nothing_says_why(text: str, why: str) -> None:
    with pytest.raises(BusError, match=why):
        verify(text)


def javascript(text: str) -> str:
    """`encodeURIComponent`."""
    return quote(text, safe="!'()*")


STYLES = {
    # What is signed, and what is sent as `sr` (http.md 3).
    "Python, links": (quote_plus("amqps://localhost:5671/orders"),) * 2,
    "Python, management": (quote_plus("https://localhost:5300"),) * 2,
    "Python, a forward's target": (quote_plus("sb://localhost:5672/orders"),) * 2,
    "Python's test suite, not encoded": ("sb://localhost:5672/orders",) * 2,
    "JavaScript, links": (javascript("sb://localhost:5672/orders"),) * 2,
    "JavaScript, management": (
        javascript("https://localhost:5300/orders?api-version=2021-05&enrich=true").lower(),
    )
    * 2,
    "JavaScript, a list": (
        javascript("https://localhost/orders?api-version=2021-05&$skip=0&$top=100").lower(),
    )
    * 2,
    ".NET, lower-cased": (quote_plus("amqps://localhost/orders/").lower(),) * 2,
    "http": (quote_plus("http://localhost/Orders/"),) * 2,
    "decoded on its way": (quote_plus("sb://localhost/orders"), "sb://localhost/orders"),
    "signed plainly, sent encoded": ("sb://localhost/orders", quote_plus("sb://localhost/orders")),
    "encoded anew in capitals": (
        javascript("sb://localhost/orders").lower(),
        javascript("sb://localhost/orders"),
    ),
    "encoded anew in small letters": (
        quote_plus("sb://localhost/orders"),
        quote_plus("sb://localhost/orders").lower(),
    ),
}


@pytest.mark.parametrize(("signed", "sent"), STYLES.values(), ids=STYLES)
def test_client_libraries_sign_in_their_own_ways(signed: str, sent: str) -> None:
    assert verify(token(sent, signed=signed)).allows("orders", Right.SEND, NOW_MS)


@pytest.mark.parametrize("host", [javascript("localhost:5672"), "contoso.servicebus.windows.net"])
def test_javascript_signs_the_mere_host_for_the_destinations_of_forwards(host: str) -> None:
    assert verify(token(host), bare_host=True).allows("orders", Right.SEND, NOW_MS)
    with pytest.raises(BusError, match="InvalidAudience"):
        verify(token(host))
    with pytest.raises(BusError, match="InvalidAudience"):
        verify(token("other.example.net"), bare_host=True)


def test_a_canonical_encoding_is_of_the_same_resource() -> None:
    """What the signature covers is what opens: another text is another resource."""
    for signed in (f"{HOST}/orders", quote_plus(f"{HOST}/orders")):
        with pytest.raises(BusError, match="InvalidSignature"):
            verify(token(quote_plus(f"{HOST}/invoices"), signed=signed))


def test_the_parts_of_a_token_come_in_any_order() -> None:
    prefix, _, fields = token(quote_plus(HOST)).partition(" ")
    parts = fields.split("&")
    for turn in range(len(parts)):
        assert verify(f"{prefix} {'&'.join(parts[turn:] + parts[:turn])}")


def test_who_guesses_the_key_of_nobody_gets_nothing() -> None:
    """Rules that are not there are looked at as long as others, and open nothing."""
    for key in (auth.NOBODY.primary_key, auth.NOBODY.secondary_key):
        assert key is not None
        for rule in ("nobody", "root", "send-orders", quote_plus("a b")):
            with pytest.raises(BusError, match="InvalidSignature"):
                verify(token(quote_plus(HOST), key=key, rule=rule))
        with pytest.raises(BusError, match="InvalidSignature"):
            auth.verify_password("nobody", key, Rules())


@pytest.mark.parametrize(
    ("rule", "audience"),
    [("root", "orders"), ("nobody", "orders"), ("send-orders", "orders"), ("root", "missing")],
)
def test_as_many_signatures_are_compared_whatever_rules_there_are(
    monkeypatch: pytest.MonkeyPatch, rule: str, audience: str
) -> None:
    compared = []
    equal = auth._equal
    monkeypatch.setattr(auth, "_equal", lambda *both: compared.append(1) or equal(*both))
    resource = quote_plus(HOST)
    with pytest.raises(BusError):
        verify(token(resource, key="wrong", rule=rule), audience)
    # Two keys each of the namespace's rule and the entity's, for every way to write the resource.
    assert len(compared) == 4 * len(auth.signed_texts(resource))


def test_both_keys_of_a_rule_sign() -> None:
    assert verify(token(HOST, key="second-root-key")).rule_name == "root"


@pytest.mark.parametrize("encodings", [1, 2])
def test_the_rule_name_may_be_encoded_twice_as_python_does(encodings: int) -> None:
    name = "a+b c/d"
    for _ in range(encodings):
        name = quote_plus(name)
    assert verify(token(HOST, key="odd-key", rule=name)).rule_name == "a+b c/d"


def test_the_prefix_is_recognised_in_any_case() -> None:
    assert verify(token(HOST).replace("SharedAccessSignature", "sharedaccesssignature"))


def test_the_azure_client_signs_what_we_verify() -> None:
    from azure.servicebus._pyamqp.utils import generate_sas_token

    text: str = generate_sas_token(  # type: ignore[no-untyped-call]
        f"{HOST}:5673/orders", "a+b c/d", "odd-key", int(LATER)
    )
    assert verify(text).expires_ms == int(LATER) * 1000


@pytest.mark.parametrize(
    ("claims", "right", "has"),
    [
        (["Manage"], Right.SEND, True),
        (["Manage"], Right.LISTEN, True),
        (["Send"], Right.SEND, True),
        (["Send"], Right.LISTEN, False),
        (["Listen"], Right.MANAGE, False),
        (["Send", "Listen"], Right.MANAGE, False),
        ([], Right.SEND, False),
    ],
)
def test_manage_implies_send_and_listen(claims: list[str], right: Right, has: bool) -> None:
    assert (right in Right.of(claims)) is has


def test_a_rule_of_an_entity_opens_that_entity_only() -> None:
    access = verify(token(quote_plus(HOST), key="orders-key", rule="send-orders"))
    assert access.allows("orders", Right.SEND, NOW_MS)
    assert access.allows("orders/$DeadLetterQueue", Right.SEND, NOW_MS, entity="orders")
    assert not access.allows("orders", Right.LISTEN, NOW_MS)
    # `orders/new` is another queue that only looks as if it were inside.
    assert not access.allows("orders/new", Right.SEND, NOW_MS, entity="orders/new")
    with pytest.raises(BusError):
        verify(token(quote_plus(HOST), key="orders-key", rule="send-orders"), "invoices")
    with pytest.raises(BusError):
        verify(token(quote_plus(HOST), key="orders-key", rule="send-orders"), "")


def test_access_ends_when_the_token_expires() -> None:
    access = verify(token(HOST))
    assert access.allows("orders", Right.SEND, int(LATER) * 1000 - 1)
    assert not access.allows("orders", Right.SEND, int(LATER) * 1000)


def test_a_password_opens_the_namespace_with_its_rule_s_rights() -> None:
    access = auth.verify_password("root", "second-root-key", Rules())
    assert access.allows("anything/at/all", Right.MANAGE, NOW_MS)
    for name, key in [("root", "wrong"), ("nobody", "root-key"), ("root", ""), ("", "")]:
        with pytest.raises(BusError):
            auth.verify_password(name, key, Rules())
