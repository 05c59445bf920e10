"""Access rules of namespaces and entities: what they may be, how they change (D-34, LIM-12)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from busway.cluster.catalog import Catalog
from busway.cluster.catalogs import Catalogs
from busway.cluster.declared import apply_access
from busway.cluster.namespace_access import KeyName
from busway.config import ConfigError
from busway.model.entities import (
    ALL_RIGHTS,
    ROOT_RULE_NAME,
    AuthorizationRule,
    Queue,
    Topic,
)
from busway.model.errors import ARGUMENT_ERROR, SERVER_BUSY, BusError

READER = AuthorizationRule("reader", ("Listen",), "k", "k2")
SENDER = AuthorizationRule("sender", ("Send",), "k")
MANAGER = AuthorizationRule("manager", ALL_RIGHTS, "k", "k2")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@pytest.fixture
def catalog(file: Path) -> Catalog:
    return opened(file)


def opened(file: Path) -> Catalog:
    catalog = Catalog.open(file)
    catalog.stores.register(["store-a", "store-b"])
    return catalog


def in_namespace(catalog: Catalog, *rules: AuthorizationRule, now_ms: int = 0) -> None:
    catalog.update_namespace(replace(catalog.namespace, authorization_rules=rules), now_ms)


def on_queue(catalog: Catalog, *rules: AuthorizationRule, now_ms: int = 0) -> None:
    description = Queue(path="orders", authorization_rules=rules)
    if catalog.find("orders") is None:
        catalog.create_queue(description, now_ms)
    else:
        catalog.update(description, now_ms)


def on_topic(catalog: Catalog, *rules: AuthorizationRule, now_ms: int = 0) -> None:
    description = Topic(path="orders", authorization_rules=rules)
    if catalog.find("orders") is None:
        catalog.create_topic(description, now_ms)
    else:
        catalog.update(description, now_ms)


Put = Callable[..., None]
EVERYWHERE = pytest.mark.parametrize("put", [in_namespace, on_queue, on_topic])


def found(catalog: Catalog, name: str) -> AuthorizationRule | None:
    of_entity = catalog.entity_rule("orders", name)
    return catalog.namespace_rule(name) if of_entity is None else of_entity[1]


class TestTheRootRule:
    def test_has_all_rights_and_is_not_stored(self, catalog: Catalog, file: Path) -> None:
        catalog.set_root_key("topsecretkey")
        rule = catalog.namespace_rule(ROOT_RULE_NAME)
        assert rule is not None
        assert (rule.rights, rule.primary_key) == (("Manage", "Send", "Listen"), "topsecretkey")
        catalog.update_namespace(catalog.namespace)
        assert opened(file).namespace_rule(ROOT_RULE_NAME) is None
        assert all(b"topsecretkey" not in each.read_bytes() for each in file.parent.iterdir())

    def test_is_not_taken_away_with_the_others(self, catalog: Catalog) -> None:
        catalog.set_root_key("topsecretkey")
        in_namespace(catalog, replace(READER, name=ROOT_RULE_NAME.upper()), SENDER)
        rules = catalog.namespace.authorization_rules
        assert [rule.name for rule in rules] == [ROOT_RULE_NAME, "sender"]
        assert rules[0].primary_key == "topsecretkey"


class TestWhatTheyMayBe:
    @EVERYWHERE
    @pytest.mark.parametrize(
        ("rules", "said"),
        [
            (
                [replace(SENDER, name=f"r{i}") for i in range(13)],
                "access rules, and 12 may be at most",
            ),
            ([SENDER, replace(READER, name="SENDER")], "two access rules of the name 'SENDER'"),
            ([replace(SENDER, rights=())], "some of the rights Manage, Send, Listen"),
            ([replace(SENDER, rights=("Write",))], "some of the rights Manage, Send, Listen"),
            ([replace(SENDER, rights=("Manage", "Send"))], "needs Send and Listen as well"),
            ([replace(SENDER, name="")], "a name of 1 to 256 characters"),
            ([replace(SENDER, primary_key="")], "keys of 1 to 256 characters"),
            ([replace(SENDER, secondary_key="k" * 257)], "keys of 1 to 256 characters"),
        ],
    )
    def test_others_are_refused_and_change_nothing(
        self, catalog: Catalog, put: Put, rules: list[AuthorizationRule], said: str
    ) -> None:
        put(catalog, READER)
        with pytest.raises(BusError, match=said) as raised:
            put(catalog, *rules)
        assert raised.value.kind is ARGUMENT_ERROR
        assert found(catalog, "reader") == READER
        assert found(catalog, "sender") is None

    def test_lim_12_the_root_rule_counts(self, catalog: Catalog) -> None:
        in_namespace(catalog, *(replace(SENDER, name=f"r{i}") for i in range(11)))
        with pytest.raises(BusError, match="There are 13 access rules, and 12 may be at most"):
            in_namespace(catalog, *(replace(SENDER, name=f"r{i}") for i in range(12)))

    def test_rights_are_in_the_words_and_order_of_the_service(self, catalog: Catalog) -> None:
        on_queue(catalog, replace(SENDER, rights=("listen", "MANAGE", "send", "Send")))
        rule = found(catalog, "sender")
        assert rule is not None
        assert rule.rights == ("Manage", "Send", "Listen")


class TestChanging:
    @EVERYWHERE
    def test_they_are_there_again(self, catalog: Catalog, file: Path, put: Put) -> None:
        put(catalog, READER, SENDER, now_ms=5)
        for each in (catalog, opened(file)):
            assert found(each, "READER") == replace(READER, created_ms=5, updated_ms=5)
            assert found(each, "sender") == replace(SENDER, created_ms=5, updated_ms=5)

    @EVERYWHERE
    def test_new_keys_take_the_place_of_old_ones_at_once(self, catalog: Catalog, put: Put) -> None:
        put(catalog, READER, SENDER, now_ms=5)
        put(catalog, replace(READER, primary_key="new"), SENDER, now_ms=9)
        reader, sender = found(catalog, "reader"), found(catalog, "sender")
        assert reader == replace(READER, primary_key="new", created_ms=5, updated_ms=9)
        assert sender == replace(SENDER, created_ms=5, updated_ms=5)

    @EVERYWHERE
    def test_a_rule_that_is_left_out_is_gone(self, catalog: Catalog, put: Put) -> None:
        put(catalog, READER, SENDER)
        put(catalog, SENDER)
        assert found(catalog, "reader") is None
        put(catalog)
        assert found(catalog, "sender") is None

    def test_they_are_each_namespace_s_own(self) -> None:
        catalogs = Catalogs.open(None)
        in_namespace(catalogs.namespace("contoso"), READER)
        assert catalogs.namespace("contoso").namespace_rule("reader") == READER
        assert catalogs.default.namespace_rule("reader") is None

    @pytest.mark.parametrize(
        "changed", [{"name": "other"}, {"partitions": 2}], ids=lambda each: next(iter(each))
    )
    def test_what_is_fixed_of_a_namespace_stays(
        self, catalog: Catalog, changed: dict[str, Any]
    ) -> None:
        with pytest.raises(BusError, match="cannot be changed"):
            catalog.update_namespace(replace(catalog.namespace, **changed))


def test_d34_a_rule_of_an_entity_holds_for_what_lies_in_it(catalog: Catalog) -> None:
    catalog.create_queue(Queue(path="eu/Orders", authorization_rules=(SENDER,)))
    catalog.create_queue(Queue(path="eu/orders2"))
    assert catalog.entity_rule("EU/orders", "sender") == ("eu/Orders", SENDER)
    assert catalog.entity_rule("eu/orders/$DeadLetterQueue", "Sender") == ("eu/Orders", SENDER)
    assert catalog.entity_rule("eu/orders2", "sender") is None
    assert catalog.entity_rule("eu", "sender") is None
    assert catalog.entity_rule("eu/orders", "other") is None


class TestFromAFile:
    def test_others_are_left_alone(self, catalog: Catalog) -> None:
        in_namespace(catalog, READER, SENDER)
        apply_access([replace(SENDER, primary_key="new")], catalog, 7)
        assert catalog.namespace_rule("reader") == READER
        assert catalog.namespace_rule("sender") == replace(SENDER, primary_key="new", updated_ms=7)

    def test_too_many_are_refused_with_the_namespace(self, catalog: Catalog) -> None:
        rules = [replace(SENDER, name=f"r{i}") for i in range(12)]
        with pytest.raises(ConfigError, match="namespace 'busway': There are 13 access rules"):
            apply_access(rules, catalog)

    def test_what_it_said_before_does_not_undo_what_was_changed_since(
        self, catalog: Catalog, file: Path
    ) -> None:
        apply_access([READER, SENDER], catalog, 1)
        catalog.access.renew("reader", KeyName.PRIMARY, "renewed", 2)
        catalog.access.remove("sender", 3)
        catalog.close()
        again = opened(file)
        apply_access([READER, SENDER], again, 4)
        reader = again.namespace_rule("reader")
        assert reader is not None
        assert reader.primary_key == "renewed"
        assert again.namespace_rule("sender") is None

    def test_what_it_had_left_out_is_said_anew(self, catalog: Catalog) -> None:
        apply_access([SENDER], catalog, 1)
        catalog.access.renew("sender", KeyName.PRIMARY, "renewed", 2)
        apply_access([], catalog, 3)
        apply_access([SENDER], catalog, 4)
        sender = catalog.namespace_rule("sender")
        assert sender is not None
        assert sender.primary_key == SENDER.primary_key


class TestSomebodyMayAlwaysManage:
    """Also where there is no root rule."""

    def test_the_last_one_is_neither_removed_nor_given_less(self, catalog: Catalog) -> None:
        catalog.access.put(MANAGER, 1)
        with pytest.raises(BusError, match="No rule of the namespace would have the right Manage"):
            catalog.access.remove("manager", 2)
        with pytest.raises(BusError, match="No rule of the namespace would have the right Manage"):
            catalog.access.put(replace(MANAGER, rights=("Send",)), 2)
        catalog.access.put(replace(MANAGER, name="other"), 3)
        catalog.access.remove("manager", 4)
        assert catalog.namespace_rule("manager") is None

    def test_with_the_root_rule_any_other_may_go(self, catalog: Catalog) -> None:
        catalog.set_root_key("topsecretkey")
        catalog.access.put(MANAGER, 1)
        catalog.access.remove("manager", 2)
        assert catalog.namespace_rule("manager") is None


class TestRenewingTheRootRule:
    def test_keys_that_cannot_be_kept_are_not_taken(self, catalog: Catalog) -> None:
        """A key that the next start does not know would lock its owner out."""

        def keep(primary: str, secondary: str | None) -> None:
            raise OSError(28, "No space left on device")

        catalog.set_root_key("topsecretkey", keep=keep)
        with pytest.raises(BusError) as raised:
            catalog.access.renew(ROOT_RULE_NAME, KeyName.PRIMARY, "new", 1)
        assert raised.value.kind is SERVER_BUSY
        assert catalog.access.existing(ROOT_RULE_NAME).primary_key == "topsecretkey"

    def test_both_keys_are_kept_together(self, catalog: Catalog) -> None:
        kept: list[tuple[str, str | None]] = []
        catalog.set_root_key("one", None, lambda *keys: kept.append(keys))
        catalog.access.renew(ROOT_RULE_NAME, KeyName.SECONDARY, "two", 1)
        catalog.access.renew(ROOT_RULE_NAME, KeyName.PRIMARY, "three", 2)
        assert kept == [("one", "two"), ("three", "two")]
