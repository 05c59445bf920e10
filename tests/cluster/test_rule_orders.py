"""D-28: what transactions want done in the catalog, in one commit and once."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from busway.amqp.types import Int, Symbol, Timestamp
from busway.cluster.catalog import Catalog, Change
from busway.cluster.catalogs import Catalogs
from busway.cluster.rule_orders import RuleOrder, decode_orders, encode_orders
from busway.model.entities import CorrelationFilter, Rule, SqlFilter, Subscription, Topic
from busway.model.errors import SERVER_BUSY, BusError

STORE = "store-a"


def opened(file: Path | None) -> Catalog:
    catalogs = Catalogs.open(file)
    catalogs.stores.register([STORE])
    return catalogs.default


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = opened(tmp_path / "catalog.db")
    catalog.create_topic(Topic(path="t"))
    catalog.create_subscription(Subscription(topic="t", name="s"))
    return catalog


def subscription_of(catalog: Catalog) -> Subscription:
    found = catalog.find_subscription("t", "s")
    assert found is not None
    return found


def names(catalog: Catalog) -> list[str]:
    return [rule.name for rule in catalog.rules(subscription_of(catalog))]


def orders(catalog: Catalog, *wanted: Rule | str) -> bytes:
    """A rule to add it, a name to remove it."""
    incarnation = subscription_of(catalog).incarnation
    return encode_orders(
        [
            RuleOrder(incarnation, each, None)
            if isinstance(each, str)
            else RuleOrder(incarnation, each.name, each)
            for each in wanted
        ]
    )


def test_what_a_rule_says_survives_the_way() -> None:
    values = {"i": Int(1), "s": "é", "y": Symbol("y"), "t": Timestamp(5), "b": b"\x00", "n": None}
    wanted = [
        RuleOrder(7, "a", Rule(name="a", filter=CorrelationFilter(label="x", properties=values))),
        RuleOrder(7, "b", Rule(name="b", filter=SqlFilter("i = 1"), action="SET a = 2")),
        RuleOrder(8, "$Default", None),
    ]
    assert decode_orders(encode_orders(wanted)) == wanted


def test_they_are_carried_out_in_order_and_once(catalog: Catalog) -> None:
    wanted = orders(catalog, "$Default", Rule(name="$Default", filter=SqlFilter("1 = 0")))
    catalog.carry_out(STORE, b"1", wanted)
    (rule,) = catalog.rules(subscription_of(catalog))
    assert rule.filter == SqlFilter("1 = 0")
    catalog.remove_rule(subscription_of(catalog), "$Default")
    catalog.carry_out(STORE, b"1", wanted)
    assert names(catalog) == []
    catalog.carry_out("another store", b"1", orders(catalog, Rule(name="r")))
    assert names(catalog) == ["r"], "an id is its store's own"


def test_a_new_start_knows_what_was_carried_out(catalog: Catalog, tmp_path: Path) -> None:
    wanted = orders(catalog, Rule(name="r"))
    catalog.carry_out(STORE, b"1", wanted)
    catalog.remove_rule(subscription_of(catalog), "r")
    catalog._file.close()
    again = opened(tmp_path / "catalog.db")
    again.keep_carried_out(STORE, [b"1"])
    again.carry_out(STORE, b"1", wanted)
    assert names(again) == ["$Default"]
    again.keep_carried_out(STORE, [])
    again.carry_out(STORE, b"1", wanted)
    assert names(again) == ["$Default", "r"], "forgotten, because no store asks for it"


def test_a_file_that_cannot_be_written_changes_nothing(catalog: Catalog, tmp_path: Path) -> None:
    told: list[Change] = []
    catalog.listen(told.append)
    wanted = orders(catalog, Rule(name="r"), "$Default")
    database = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
    database.execute(
        "CREATE TRIGGER full BEFORE DELETE ON rules BEGIN SELECT raise(ABORT, 'full'); END"
    )
    with pytest.raises(BusError) as refused:
        catalog.carry_out(STORE, b"1", wanted)
    assert refused.value.kind is SERVER_BUSY
    assert (names(catalog), told) == (["$Default"], [])
    database.execute("DROP TRIGGER full")
    database.close()
    catalog.carry_out(STORE, b"1", wanted)
    assert names(catalog) == ["r"]
    assert len(told) == 2
    catalog._file.close()
    assert names(opened(tmp_path / "catalog.db")) == ["r"]


def test_one_that_cannot_be_is_left_out(catalog: Catalog) -> None:
    gone = RuleOrder(99, "r", Rule(name="r"))
    catalog.carry_out(STORE, b"1", encode_orders([gone]))
    catalog.carry_out(STORE, b"2", orders(catalog, "not there", Rule(name="$default"), "$Default"))
    assert names(catalog) == []
