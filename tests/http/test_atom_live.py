"""What an entity holds just now: counts, sizes, times, and partitions that are ill (P-43)."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityDisabledError, ServiceBusError

from busway.amqp.types import Symbol
from busway.http.atom.live import look_at
from busway.model.entities import EntityStatus
from busway.testing import Server
from tests.gateway.world import World, message
from tests.http.atom_client import Management, Reply, description

WAIT_S = 60.0
VIA = Symbol("com.microsoft:transfer-destination-address")
COUNTS = (
    "ActiveMessageCount",
    "DeadLetterMessageCount",
    "ScheduledMessageCount",
    "TransferMessageCount",
    "TransferDeadLetterMessageCount",
)


def counts(reply: Reply) -> list[int]:
    return [reply.count(name) for name in COUNTS]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


def send(bus: Management, path: str, body: bytes = b"x" * 100, **properties: Any) -> None:
    reply = bus.request(
        "POST",
        f"{path}/messages",
        body,
        headers={"BrokerProperties": json.dumps(properties)},
        api_version=None,
    )
    assert reply.status == 201, reply.body


def send_later(bus: Management, path: str) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    send(bus, path, ScheduledEnqueueTimeUtc=later)


def availability(bus: Management, path: str) -> str | None:
    return bus.get(path).text("EntityAvailabilityStatus")


@contextmanager
def gone(bus: Management, store: str = "store-1") -> Iterator[None]:
    """While a store is away, and its broker knows it."""

    def be(mode: str, then: str) -> None:
        path = f"/$busway/stores/{store}/fault"
        assert bus.request("POST", path, json.dumps({"mode": mode}).encode()).status == 200
        until(lambda: availability(bus, "/on-all-stores") == then)

    bus.put("/on-all-stores", description("Queue", EnablePartitioning="true"))
    be("gone", then="Limited")
    try:
        yield
    finally:
        be("none", then="Available")


@pytest.mark.parametrize("partitioned", ["false", "true"])
class TestCounts:
    def test_of_a_queue_in_all_states(
        self, bus: Management, managed: Server, partitioned: str
    ) -> None:
        name = f"states-{partitioned}"
        bus.create("Queue", f"/{name}", EnablePartitioning=partitioned)
        for _ in range(20):
            send(bus, f"/{name}")
        for _ in range(3):
            send_later(bus, f"/{name}")
        assert counts(bus.get(f"/{name}")) == [20, 0, 3, 0, 0]

        with ServiceBusClient.from_connection_string(managed.connection_string) as client:
            receiver = client.get_queue_receiver(name)
            with receiver:
                messages: list[Any] = []
                while len(messages) < 10:
                    messages += receiver.receive_messages(10 - len(messages), max_wait_time=10)
                for message in messages[:2]:
                    receiver.dead_letter_message(message, reason="why")
                for message in messages[2:5]:
                    receiver.defer_message(message)
                for message in messages[5:9]:
                    receiver.complete_message(message)
                # The tenth is locked, and there.
                got = bus.get(f"/{name}")
        assert counts(got) == [14, 2, 3, 0, 0]  # deferred ones are active
        assert got.text("MessageCount") == "19"
        assert int(got.text("SizeInBytes") or 0) > 19 * 100

    def test_of_subscriptions_and_their_topic(self, bus: Management, partitioned: str) -> None:
        topic = f"/fan-out-{partitioned}"
        bus.create("Topic", topic, EnablePartitioning=partitioned)
        for name in ("a", "b"):
            bus.create("Subscription", f"{topic}/Subscriptions/{name}")
        for _ in range(5):
            send(bus, topic)
        send_later(bus, topic)
        for name in ("a", "b"):
            got = bus.get(f"{topic}/Subscriptions/{name}")
            assert counts(got) == [5, 0, 0, 0, 0]
            assert got.text("MessageCount") == "5"
        got = bus.get(topic)
        assert counts(got) == [0, 0, 1, 0, 0]
        assert got.text("SubscriptionCount") == "2"
        assert int(got.text("SizeInBytes") or 0) > 11 * 100
        listed = bus.get(f"{topic}/Subscriptions")
        assert listed.body.count(b"<d2p1:ActiveMessageCount>5<") == 2

    def test_tell_when_it_was_used(self, bus: Management, partitioned: str) -> None:
        """STA-6."""
        path = f"/used-{partitioned}"
        made = bus.create("Queue", path, EnablePartitioning=partitioned)
        assert bus.get(path).text("AccessedAt") == "0001-01-01T00:00:00Z"
        send(bus, path)
        assert bus.get(path).moment("AccessedAt") >= made.moment("UpdatedAt")
        bus.delete(path)
        bus.create("Queue", path)
        assert bus.get(path).text("AccessedAt") == "0001-01-01T00:00:00Z"


class TestIllPartitions:
    def test_a_partitioned_queue_is_limited_and_still_told_of(self, bus: Management) -> None:
        """P-43."""
        bus.create("Queue", "/half", EnablePartitioning="true")
        bus.create("Topic", "/half-topic", EnablePartitioning="true")
        bus.create("Subscription", "/half-topic/Subscriptions/s")
        for _ in range(16):
            send(bus, "/half")
        with gone(bus):
            for path in ("/half", "/half-topic", "/half-topic/Subscriptions/s"):
                got = bus.get(path)
                assert got.status == 200
                assert got.text("EntityAvailabilityStatus") == "Limited"
            assert bus.get("/half").count("ActiveMessageCount") >= 8
            assert b"Limited" in bus.get("/$Resources/queues").body
        assert availability(bus, "/half") == "Available"
        assert bus.get("/half").count("ActiveMessageCount") == 16

    def test_entities_can_be_made_changed_and_deleted_meanwhile(self, bus: Management) -> None:
        """P-42: it is one commit of the catalog; what the ill store holds is purged later."""
        bus.create("Queue", "/brave", EnablePartitioning="true")
        with gone(bus):
            body = description("Queue", MaxDeliveryCount=3)
            assert bus.update("/brave", body).status == 200
            assert bus.delete("/brave").status == 200
            assert bus.get("/brave").status == 404
            assert bus.put("/brave", description("Queue")).status == 201
            assert bus.get("/brave").text("MaxDeliveryCount") == "10"

    def test_what_cannot_be_handed_over_is_counted_as_transfer(self, bus: Management) -> None:
        """FWD-2: it waits until the destination is there again."""
        names = [f"/hand-over-{number}" for number in range(16)]
        for name in names:
            bus.create("Queue", name)
        with gone(bus):
            there = {name: availability(bus, name) for name in names}
            source = next(name for name in names if there[name] == "Available")
            target = next(name for name in names if there[name] == "Limited")
            bus.update(source, description("Queue", ForwardTo=target[1:]))
            send(bus, source)
            assert counts(bus.get(source)) == [0, 0, 0, 1, 0]
            assert bus.get(source).text("MessageCount") == "1"
        until(lambda: counts(bus.get(target)) == [1, 0, 0, 0, 0])
        until(lambda: counts(bus.get(source)) == [0, 0, 0, 0, 0])


def test_transfer_dead_letters_are_counted() -> None:
    """FWD-5: a client that sends via one queue to another which takes nothing."""
    world = World()
    via = world.queue("in")
    world.queue("out", status=EntityStatus.SEND_DISABLED)
    sender = world.connect().sender("in", "via", properties={VIA: "out"})
    sender.send(message("lost"))
    world.settle(for_ms=1_000)
    live = look_at(world.gateway, via)
    assert (live.transfer_dead_letter, live.transfer, live.messages) == (1, 0, 1)


def test_a_change_of_status_detaches_links(bus: Management, managed: Server) -> None:
    """STA-2: senders are told at once, and once it is active again they go on."""
    bus.create("Queue", "/switched")
    with (
        ServiceBusClient.from_connection_string(managed.connection_string, retry_total=0) as client,
        client.get_queue_sender("switched") as sender,
    ):
        sender.send_messages(ServiceBusMessage("before"))
        bus.update("/switched", description("Queue", Status="SendDisabled"))
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("during"))
        with (
            pytest.raises(MessagingEntityDisabledError, match="disabled for Send"),
            client.get_queue_sender("switched") as again,
        ):
            again.send_messages(ServiceBusMessage("during"))
        bus.update("/switched", description("Queue"))
        with client.get_queue_sender("switched") as again:
            again.send_messages(ServiceBusMessage("after"))
    assert bus.get("/switched").count("ActiveMessageCount") == 2


def test_all_of_it_is_there_after_a_crash(tmp_path: Path) -> None:
    """D-16: entities, rules, access rules and counts."""
    rule = (
        "<AuthorizationRule><KeyName>k</KeyName><Rights><AccessRights>Send</AccessRights></Rights>"
        "</AuthorizationRule>"
    )
    with Server(data=tmp_path) as server:
        bus = Management(server)
        access = f"<AuthorizationRules>{rule}</AuthorizationRules>"
        bus.create("Queue", "/q", access, EnablePartitioning="true", LockDuration="PT7S")
        bus.create("Topic", "/t")
        bus.create("Subscription", "/t/Subscriptions/s")
        action = (
            '<Action i:type="SqlRuleAction"><SqlExpression>SET a = @b</SqlExpression><Parameters>'
            "<KeyValueOfstringanyType><Key>@b</Key><Value i:type='x:int'>1</Value>"
            "</KeyValueOfstringanyType></Parameters></Action>"
        )
        bus.create("Rule", "/t/Subscriptions/s/Rules/r", action)
        send(bus, "/q")
        paths = ("/q", "/t", "/t/Subscriptions/s", "/t/Subscriptions/s/Rules/r")
        before = [bus.get(path, api_version="2017-04").content for path in paths]
        bus.close()
        server.kill()
        server.restart()
        bus = Management(server)
        after = [bus.get(path, api_version="2017-04").content for path in paths]
        for old, new in zip(before, after, strict=True):
            for was, now in zip(old.iter(), new.iter(), strict=True):
                if not was.tag.endswith("AccessedAt"):  # memory only
                    assert (was.tag, was.text, was.attrib) == (now.tag, now.text, now.attrib)
        bus.close()


def test_a_change_that_cannot_be_written_can_be_repeated(tmp_path: Path) -> None:
    """P-42: somebody else holds the catalog's file. The answer says so; nothing is half done."""
    with Server(data=tmp_path) as server:
        bus = Management(server)
        bus.create("Topic", "/old", EnablePartitioning="true")
        bus.create("Subscription", "/old/Subscriptions/s")
        somebody = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
        somebody.execute("BEGIN IMMEDIATE")
        refused = bus.delete("/old")
        assert (refused.status, "busy" in refused.detail) == (503, True)
        assert bus.get("/old/Subscriptions/s/Rules/$Default").status == 200
        somebody.rollback()
        somebody.close()
        assert bus.delete("/old").status == 200
        assert bus.get("/old/Subscriptions/s").status == 404
        bus.close()
