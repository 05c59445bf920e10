"""Which entities are captured, and how much of their journals is kept, by configuration (D-31)."""

from __future__ import annotations

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
