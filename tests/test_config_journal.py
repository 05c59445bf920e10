"""Which entities are captured, and how much of their journals is kept, by configuration (D-31)."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from busway.cluster import declared
from busway.cluster.catalogs import Catalogs
from busway.config import ConfigError, load
from busway.config.journal import KEYS
from busway.model.durations import DAY_MS, MINUTE_MS
from busway.model.entities import Queue, Subscription, Topic
from busway.model.journal import JournalLimits
from busway.model.limits import MIB
from busway.model.properties import PROPERTIES
from busway.model.retention import OWN_LIMITS, OwnLimits

REFERENCE = Path(__file__).parents[1] / "docs" / "reference" / "configuration.md"

ENTITIES = """
[[queues]]
name = "orders"
capture = true
[[topics]]
name = "news"
capture = true
[[topics.subscriptions]]
name = "all"
capture = true
[[topics.subscriptions]]
name = "some"
"""


def file_with(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "busway.toml"
    path.write_text(text)
    return path


def limits(tmp_path: Path, text: str) -> JournalLimits:
    return load({"config": file_with(tmp_path, text)}, {}).journal


class TestCapture:
    def test_entities_of_every_kind_can_be_captured(self, tmp_path: Path) -> None:
        entities = load({"config": file_with(tmp_path, ENTITIES)}, {}).entities
        assert [each.entity.capture for each in entities] == [True, True, True, False]

    def test_the_catalog_keeps_it_and_since_when(self, tmp_path: Path) -> None:
        path = tmp_path / "catalog.db"
        catalogs = Catalogs.open(path)
        catalogs.stores.register(["a"])
        entities = load({"config": file_with(tmp_path, ENTITIES)}, {}).entities
        declared.apply(entities, catalogs.default, now_ms=5)
        declared.apply(entities, catalogs.default, now_ms=9)
        catalogs.close()
        reopened = Catalogs.open(path)
        again = reopened.default
        queue, topic = again.find("orders"), again.find("news")
        assert isinstance(queue, Queue)
        assert isinstance(topic, Topic)
        assert (queue.capture, queue.captured_ms) == (True, 5)
        assert (topic.capture, topic.captured_ms) == (True, 5)
        subscription = again.find_subscription("news", "all")
        assert isinstance(subscription, Subscription)
        assert (subscription.capture, subscription.captured_ms) == (True, 5)
        reopened.close()

    def test_it_changes_at_any_time(self) -> None:
        catalogs = Catalogs.open(None)
        catalogs.stores.register(["a"])
        catalog = catalogs.default
        catalog.create_queue(Queue(path="orders"), 1)
        on = catalog.update(Queue(path="orders", capture=True), 5)
        still = catalog.update(Queue(path="orders", capture=True, max_delivery_count=3), 7)
        off = catalog.update(Queue(path="orders"), 8)
        anew = catalog.update(Queue(path="orders", capture=True), 9)
        assert [each.captured_ms for each in (on, still, off, anew)] == [5, 5, 0, 9]

    def test_it_is_no_property_of_the_service(self, tmp_path: Path) -> None:
        """The service's faces go by that table: no client library meets what it does not know."""
        assert "capture" not in {row.field for row in PROPERTIES}
        path = tmp_path / "emulator.json"
        path.write_text(
            '{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "q",'
            ' "Properties": {"Capture": true}}]}]}}'
        )
        with pytest.raises(ConfigError, match="Capture"):
            load({"config": path}, {})


WITH_LIMITS = """
[[queues]]
name = "orders"
capture = { retention = "3d", max_size_mb = 512 }
[[topics]]
name = "news"
[topics.capture]
held_size_mb = 64
[[topics.subscriptions]]
name = "all"
capture = {}
"""
LIMITS_OF_ORDERS = OwnLimits(retention_ms=3 * DAY_MS, size_bytes=512 * MIB)


class TestLimitsOfAnEntity:
    def test_a_table_is_on_with_limits_of_its_own(self, tmp_path: Path) -> None:
        entities = load({"config": file_with(tmp_path, WITH_LIMITS)}, {}).entities
        assert [each.entity.capture for each in entities] == [True, True, True]
        assert [each.entity.capture_limits for each in entities] == [
            LIMITS_OF_ORDERS,
            OwnLimits(held_bytes=64 * MIB),
            OwnLimits(),
        ]

    def test_the_catalog_keeps_them(self, tmp_path: Path) -> None:
        path = tmp_path / "catalog.db"
        catalogs = Catalogs.open(path)
        catalogs.stores.register(["a"])
        entities = load({"config": file_with(tmp_path, WITH_LIMITS)}, {}).entities
        declared.apply(entities, catalogs.default)
        catalogs.close()
        reopened = Catalogs.open(path)
        queue = reopened.default.find("orders")
        subscription = reopened.default.find_subscription("news", "all")
        assert queue is not None
        assert subscription is not None
        assert (queue.capture_limits, subscription.capture_limits) == (
            LIMITS_OF_ORDERS,
            OwnLimits(),
        )
        reopened.close()

    @pytest.mark.parametrize(
        ("stated", "kept"),
        [
            ("capture = true", LIMITS_OF_ORDERS),
            ("capture = false", LIMITS_OF_ORDERS),
            ("", LIMITS_OF_ORDERS),
            ("capture = {}", OwnLimits()),
            ("capture = { max_size_mb = 7 }", OwnLimits(size_bytes=7 * MIB)),
        ],
    )
    def test_a_table_states_all_of_them_and_a_flag_none(
        self, tmp_path: Path, stated: str, kept: OwnLimits
    ) -> None:
        catalogs = Catalogs.open(None)
        catalogs.stores.register(["a"])
        for text in (WITH_LIMITS, f'[[queues]]\nname = "orders"\n{stated}\n'):
            entities = load({"config": file_with(tmp_path, text)}, {}).entities
            declared.apply(entities, catalogs.default)
        queue = catalogs.default.find("orders")
        assert queue is not None
        assert queue.capture_limits == kept

    @pytest.mark.parametrize(
        ("capture", "said"),
        [
            ('"yes"', "true, false, or a table"),
            ('{ retention = "5s" }', "a duration of a minute or more"),
            ("{ max_size_mb = 0 }", "1 to"),
            ("{ retention_mb = 5 }", "unknown key 'retention_mb'"),
            ('{ hold = "1d" }', "unknown key 'hold'"),
        ],
    )
    def test_what_cannot_be_is_said(self, tmp_path: Path, capture: str, said: str) -> None:
        text = f'[[queues]]\nname = "orders"\ncapture = {capture}\n'
        with pytest.raises(ConfigError, match="queue 'orders'") as caught:
            load({"config": file_with(tmp_path, text)}, {})
        assert said in str(caught.value)

    def test_each_has_its_word(self) -> None:
        """What the catalog keeps can be said in files, in requests and at the command line."""
        assert len(OWN_LIMITS) == len(fields(OwnLimits))


class TestLimits:
    def test_without_a_table_the_defaults_hold(self, tmp_path: Path) -> None:
        assert limits(tmp_path, "") == JournalLimits()
        assert JournalLimits().retention_ms == 7 * DAY_MS

    def test_every_key(self, tmp_path: Path) -> None:
        text = '[journal]\nretention = "2d"\nhold = "30m"\nmax_size_mb = 64\nheld_size_mb = 128\n'
        assert limits(tmp_path, text) == JournalLimits(
            retention_ms=2 * DAY_MS,
            size_bytes=64 * MIB,
            held_bytes=128 * MIB,
            hold_ms=30 * MINUTE_MS,
        )

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            ('retention = "unlimited"', "a duration of a minute or more"),
            ('retention = "5s"', "a duration of a minute or more"),
            ("retention = 5", "a duration of a minute or more"),
            ('hold = "soon"', "a duration of a minute or more"),
            ("max_size_mb = 0", "1 to"),
            ("max_size_mb = true", "a whole number of megabytes"),
            ('held_size_mb = "1"', "a whole number of megabytes"),
            ("max_size = 5", "max_size_mb"),
        ],
    )
    def test_what_cannot_be_is_said(self, tmp_path: Path, line: str, said: str) -> None:
        with pytest.raises(ConfigError, match=r"\[journal\]") as caught:
            limits(tmp_path, f"[journal]\n{line}\n")
        assert said in str(caught.value)

    def test_every_key_is_in_the_reference(self) -> None:
        reference = REFERENCE.read_text()
        assert [key for key in KEYS if f"`{key}`" not in reference] == []
