"""A token that was verified before opens what it would open if it were new, and no more (D-34)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from busway.cluster.catalog import Catalog
from busway.cluster.namespace_access import KeyName
from busway.gateway import auth, verified_tokens
from busway.gateway.auth import Right
from busway.gateway.verified_tokens import KEPT_MAX, VerifiedTokens
from busway.model.entities import AuthorizationRule, Queue
from busway.model.errors import (
    TOKEN_EXPIRED,
    TOKEN_SCOPE_INVALID,
    TOKEN_SIGNATURE_INVALID,
    BusError,
    ErrorKind,
)

NOW_MS = 1_800_000_000_000
LATER_S = NOW_MS // 1000 + 600
SENDER = AuthorizationRule("sender", ("Send",), "first-key", "second-key")


def own_host(name: str) -> bool:
    return name == "localhost"


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog.open(None)
    catalog.stores.register(["store-a"])
    catalog.set_root_key("topsecretkey")
    catalog.access.put(SENDER, 1)
    own = replace(SENDER, name="own", primary_key="own-key")
    catalog.create_queue(Queue(path="orders", authorization_rules=(own,)))
    catalog.create_queue(Queue(path="bills", authorization_rules=(own,)))
    return catalog


@pytest.fixture
def tokens(catalog: Catalog) -> VerifiedTokens:
    return VerifiedTokens(catalog)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The audiences for which signatures were computed."""
    audiences: list[str] = []
    verify = auth.verify

    def counted(text: str, audience: str, *others: Any) -> auth.Access:
        audiences.append(audience)
        return verify(text, audience, *others)

    monkeypatch.setattr(verified_tokens.auth, "verify", counted)
    return audiences


def of_sender(path: str = "", key: str = "first-key") -> str:
    return auth.write(f"sb://localhost/{path}", "sender", key, LATER_S)


def of_queue(path: str = "orders") -> str:
    return auth.write(f"sb://localhost/{path}", "own", "own-key", LATER_S)


def refused(tokens: VerifiedTokens, text: str, audience: str, now_ms: int = NOW_MS) -> ErrorKind:
    with pytest.raises(BusError) as raised:
        tokens.verify(text, audience, now_ms, own_host)
    return raised.value.kind


def test_it_is_verified_once_for_all_that_it_covers(
    tokens: VerifiedTokens, tried: list[str]
) -> None:
    for audience in ("orders/messages", "orders/messages/1/lock", "bills/messages"):
        access = tokens.verify(of_sender(), audience, NOW_MS, own_host)
        assert (access.scope, access.rights, access.rule_name) == (audience, Right.SEND, "sender")
        assert access.allows(audience, Right.SEND, NOW_MS)
    assert tried == ["orders/messages"]


@pytest.mark.parametrize("make", [of_sender, of_queue], ids=["namespace", "entity"])
def test_it_gives_what_a_new_one_gives(
    catalog: Catalog, tokens: VerifiedTokens, make: Callable[[], str]
) -> None:
    for _ in range(2):
        access = tokens.verify(make(), "orders/messages", NOW_MS, own_host)
        assert access == auth.verify(make(), "orders/messages", catalog, NOW_MS, own_host)


def test_it_runs_out(tokens: VerifiedTokens) -> None:
    tokens.verify(of_sender(), "orders", NOW_MS, own_host)
    tokens.verify(of_sender(), "orders", LATER_S * 1000 - 1, own_host)
    assert refused(tokens, of_sender(), "orders", LATER_S * 1000) is TOKEN_EXPIRED
    assert len(tokens) == 0


def test_it_covers_no_more_than_it_says(tokens: VerifiedTokens) -> None:
    tokens.verify(of_sender("orders"), "orders/messages", NOW_MS, own_host)
    assert refused(tokens, of_sender("orders"), "bills/messages") is TOKEN_SCOPE_INVALID


def test_it_opens_no_namespace_that_is_called_otherwise(tokens: VerifiedTokens) -> None:
    tokens.verify(of_sender(), "orders", NOW_MS, own_host)
    with pytest.raises(BusError) as raised:
        tokens.verify(of_sender(), "orders", NOW_MS, lambda name: name == "contoso.localhost")
    assert raised.value.kind is TOKEN_SCOPE_INVALID


def test_a_rule_of_one_entity_opens_no_other_of_the_same_name_and_key(
    catalog: Catalog, tokens: VerifiedTokens
) -> None:
    text = auth.write("sb://localhost/", "own", "own-key", LATER_S)
    assert tokens.verify(text, "orders/messages", NOW_MS, own_host).entity == "orders"
    assert tokens.verify(text, "bills/messages", NOW_MS, own_host).entity == "bills"
    catalog.update(Queue(path="bills"))
    assert refused(tokens, text, "bills/messages") is TOKEN_SIGNATURE_INVALID


CHANGES: dict[str, Callable[[Catalog], object]] = {
    "removed": lambda catalog: catalog.access.remove("sender", 2),
    "renewed": lambda catalog: catalog.access.renew("sender", KeyName.PRIMARY, "another", 2),
    "replaced": lambda catalog: catalog.access.put(replace(SENDER, primary_key="another"), 2),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_its_rule_is_felt_at_once(
    catalog: Catalog, tokens: VerifiedTokens, change: Callable[[Catalog], object]
) -> None:
    tokens.verify(of_sender(), "orders", NOW_MS, own_host)
    change(catalog)
    assert refused(tokens, of_sender(), "orders") is TOKEN_SIGNATURE_INVALID


def test_other_rights_are_felt_at_once(catalog: Catalog, tokens: VerifiedTokens) -> None:
    tokens.verify(of_sender(), "orders", NOW_MS, own_host)
    catalog.access.put(replace(SENDER, rights=("Listen",)), 2)
    assert tokens.verify(of_sender(), "orders", NOW_MS, own_host).rights is Right.LISTEN


def test_a_change_of_an_entitys_rules_is_felt_at_once(
    catalog: Catalog, tokens: VerifiedTokens
) -> None:
    tokens.verify(of_queue(), "orders", NOW_MS, own_host)
    catalog.update(Queue(path="orders"))
    assert refused(tokens, of_queue(), "orders") is TOKEN_SIGNATURE_INVALID


def test_the_other_key_of_a_renewed_rule_still_opens(
    catalog: Catalog, tokens: VerifiedTokens
) -> None:
    text = of_sender(key="second-key")
    tokens.verify(text, "orders", NOW_MS, own_host)
    catalog.access.renew("sender", KeyName.PRIMARY, "another", 2)
    assert tokens.verify(text, "orders", NOW_MS, own_host).rights is Right.SEND


def test_only_good_tokens_take_room_and_only_so_much(tokens: VerifiedTokens) -> None:
    refused(tokens, of_sender(key="wrong"), "orders")
    assert len(tokens) == 0
    for number in range(KEPT_MAX + 10):
        tokens.verify(of_sender(f"orders/{number}"), f"orders/{number}", NOW_MS, own_host)
    assert len(tokens) == KEPT_MAX


@pytest.mark.parametrize("text", ["", "\udcff", "SharedAccessSignature sr=\udcff&sig=x&se=1&skn=x"])
def test_bytes_of_strangers_are_refused_as_ever(tokens: VerifiedTokens, text: str) -> None:
    assert refused(tokens, text, "orders").status == 401
