"""Topics, subscriptions, schedules, duplicates and forwarding as clients see them."""

from __future__ import annotations

from typing import Any

import pytest

from busway.amqp.performatives import Accepted, Rejected, Source
from busway.amqp.types import Timestamp, ULong
from busway.model.entities import EntityStatus, Rule, SqlFilter
from busway.model.message import partition_of
from tests.gateway.world import (
    Client,
    World,
    body,
    longs,
    message,
    message_annotations,
    sections,
)

SCHEDULED = "x-opt-scheduled-enqueue-time"


def rejection(state: Any) -> str:
    assert isinstance(state, Rejected)
    assert state.error is not None
    return str(state.error.condition)


def said(payload: bytes) -> dict[str, Any]:
    return message_annotations(payload)


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def topic(request: pytest.FixtureRequest, world: World) -> str:
    return world.topic("news", enable_partitioning=request.param).path


# --- Topics and subscriptions (RUL) --------------------------------------------------------------


def test_every_subscription_gets_its_own_copy(world: World, client: Client, topic: str) -> None:
    for name in ("one", "two"):
        world.subscription(topic, name)  # RUL-1
    assert isinstance(client.sender(topic).send(message("hello")), Accepted)
    for name in ("one", "two"):
        path = f"{topic}/Subscriptions/{name}"
        (delivery,) = client.receiver(path, name, credit=5).deliveries
        assert body(delivery.payload) == "hello"
        assert said(delivery.payload)["x-opt-enqueue-sequence-number"] > 0  # RUL-3
        assert ("x-opt-partition-id" in said(delivery.payload)) == (
            world.catalog.find(topic).enable_partitioning  # type: ignore[union-attr]
        )


def test_a_send_to_a_topic_without_subscriptions_is_accepted(client: Client, topic: str) -> None:
    assert isinstance(client.sender(topic).send(message()), Accepted)  # RUL-5


def test_rules_decide_and_actions_change_the_copy(world: World, client: Client) -> None:
    world.topic("news")
    rule = Rule(name="red", filter=SqlFilter("color = 'red'"), action="SET seen = 1")
    world.subscription("news", "red", rules=[rule])
    sender = client.sender("news")
    sender.send(message("no", application_properties={"color": "blue"}))
    sender.send(message("yes", application_properties={"color": "red"}))
    (delivery,) = client.receiver("news/subscriptions/RED", credit=5).deliveries
    assert body(delivery.payload) == "yes"
    assert sections(delivery.payload)[0x74]["RuleName"] == "red"  # RUL-2


def test_a_copy_is_settled_and_dead_lettered_in_its_subscription(
    world: World, client: Client, topic: str
) -> None:
    world.subscription(topic, "s")
    client.sender(topic).send(message("bad"))
    receiver = client.receiver(f"{topic}/Subscriptions/s", credit=1)
    assert isinstance(receiver.settle(receiver.deliveries, Rejected()), Rejected)
    path = f"{topic}/Subscriptions/s/$DeadLetterQueue"
    assert client.receiver(path, "dead", credit=1).bodies == ["bad"]  # DLQ-1


def test_one_key_keeps_to_one_partition_of_a_topic(world: World, client: Client) -> None:
    world.topic("news", enable_partitioning=True)
    world.subscription("news", "s")
    sender = client.sender("news")
    for n in range(10):
        sender.send(message(f"{n}", partition_key="red"))  # P-19
    receiver = client.receiver("news/Subscriptions/s", credit=20)
    assert receiver.bodies == [f"{n}" for n in range(10)]


@pytest.mark.parametrize("mode", [None, "copy"])
def test_a_receiver_on_a_topic_is_refused(client: Client, topic: str, mode: str | None) -> None:
    """amqp.md 6. Its scheduled messages are peeked at `$management` (SCH-5)."""
    source = Source(topic, distribution_mode=mode)
    refusal = client.refusal(client.receiver(topic, source=source, credit=5).link)
    assert refusal is not None
    assert refusal.condition == "amqp:not-found"
    assert f"{topic}/Subscriptions/<name>" in str(refusal.description)


@pytest.mark.parametrize("path", ["news/Subscriptions/s", "news/Subscriptions/s/$DeadLetterQueue"])
def test_nobody_sends_to_a_subscription(world: World, client: Client, path: str) -> None:
    world.topic("news")
    world.subscription("news", "s")
    refusal = client.refusal(client.sender(path).link)
    assert refusal is not None
    assert refusal.condition == "amqp:not-allowed"


def test_a_topic_has_no_dead_letter_queue(client: Client, topic: str) -> None:
    refusal = client.refusal(client.receiver(f"{topic}/$DeadLetterQueue").link)
    assert refusal is not None
    assert refusal.condition == "amqp:not-found"  # DLQ-6


def test_a_disabled_subscription_collects_and_does_not_give(world: World, client: Client) -> None:
    world.topic("news")
    subscription = world.subscription("news", "s", status=EntityStatus.DISABLED)
    client.sender("news").send(message("kept"))
    refusal = client.refusal(client.receiver("news/Subscriptions/s").link)
    assert refusal is not None
    assert refusal.condition == "com.microsoft:entity-disabled"  # STA-1, STA-2
    from dataclasses import replace

    newest = world.catalog.get(subscription.incarnation)
    world.catalog.update(replace(newest, status=EntityStatus.ACTIVE))  # type: ignore[type-var]
    assert client.receiver("news/Subscriptions/s", "again", credit=1).bodies == ["kept"]


def test_links_go_with_the_topic_and_its_subscriptions(world: World, client: Client) -> None:
    world.topic("news")
    world.subscription("news", "s")
    sender = client.sender("news")
    receiver = client.receiver("news/Subscriptions/s", credit=1)
    world.catalog.delete("news")  # STA-4, STA-5
    world.settle()
    for link in (sender.link, receiver.link):
        refusal = client.refusal(link)
        assert refusal is not None
        assert refusal.condition == "amqp:not-found"


def test_links_stay_when_a_rule_changes(world: World, client: Client) -> None:
    world.topic("news")
    subscription = world.subscription("news", "s")
    receiver = client.receiver("news/Subscriptions/s", credit=10)
    world.catalog.add_rule(subscription, Rule(name="more"))
    world.settle()
    assert client.is_attached(receiver.link)  # RUL-6


# --- Scheduled messages (SCH) --------------------------------------------------------------------


def later(world: World, ms: int) -> dict[str, Any]:
    return {SCHEDULED: Timestamp(world.scheduler.now_ms() + ms)}


def test_a_message_scheduled_by_annotation_comes_when_it_is_due(
    world: World, client: Client, queue: str
) -> None:
    sender = client.sender(queue)
    assert isinstance(sender.send(message("later", annotations=later(world, 60_000))), Accepted)
    receiver = client.receiver(queue, credit=5)
    assert receiver.deliveries == []
    (peeked,) = client.requests(f"{queue}/$management").manage(
        "peek-message", from_sequence_number=0, message_count=5
    )[1]["messages"]
    scheduled = said(peeked["message"])
    assert scheduled["x-opt-message-state"] == 2  # SCH-5
    world.settle(for_ms=61_000)
    (delivery,) = receiver.deliveries
    assert body(delivery.payload) == "later"
    annotations = said(delivery.payload)
    assert annotations["x-opt-message-state"] == 0  # SCH-7
    assert annotations["x-opt-sequence-number"] > scheduled["x-opt-sequence-number"]  # SCH-3
    assert annotations[SCHEDULED] is not None


def test_what_is_scheduled_for_the_past_is_there_at_once(
    world: World, client: Client, queue: str
) -> None:
    client.sender(queue).send(message("now", annotations=later(world, -1)))  # SCH-1
    assert client.receiver(queue, credit=5).bodies == ["now"]


def test_schedule_and_cancel(world: World, client: Client, queue: str) -> None:
    requests = client.requests(f"{queue}/$management")
    due = later(world, 60_000)
    texts = [message(f"m{n}", partition_key="k", annotations=due) for n in range(3)]
    status, answer = requests.manage(
        "schedule-message", messages=[{"message-id": "x", "message": text} for text in texts]
    )
    numbers = answer["sequence-numbers"]
    assert status == 200  # SCH-2
    assert [type(each) for each in numbers] == [int, int, int]
    assert list(numbers) == sorted(numbers)
    assert requests.manage("cancel-scheduled-message", sequence_numbers=longs(numbers[1])) == (
        200,
        {},
    )
    status, _ = requests.manage("cancel-scheduled-message", sequence_numbers=longs(numbers[1]))
    assert (status, requests.condition) == (404, "com.microsoft:message-not-found")
    assert f"Missing sequence numbers: {numbers[1]}" in requests.description
    receiver = client.receiver(queue, credit=5)
    world.settle(for_ms=61_000)
    assert receiver.bodies == ["m0", "m2"]


def test_sch_2_numbers_of_several_partitions_are_cancelled_all_or_none(
    world: World, client: Client
) -> None:
    """4.4. The partitions lie in different stores; each is asked before any cancels."""
    world.queue("later", enable_partitioning=True)
    requests = client.requests("later/$management")
    due = later(world, 60_000)
    numbers: list[int] = []
    for key in "abcdef":
        payload = message(key, partition_key=key, annotations=due)
        _, answer = requests.manage("schedule-message", messages=[{"message": payload}])
        numbers += answer["sequence-numbers"]
    assert len({partition_of(number) for number in numbers}) > 2
    missing = [numbers[0] + 1_000, numbers[-1] + 1_000]
    cancel = {"sequence_numbers": longs(*numbers, *missing)}
    status, _ = requests.manage("cancel-scheduled-message", **cancel)
    assert (status, requests.condition) == (404, "com.microsoft:message-not-found")
    assert all(str(number) in requests.description for number in missing)
    assert str(numbers[0]) not in requests.description

    def still_there() -> int:
        peek = {"from_sequence_number": 0, "message_count": 50}
        return len(requests.manage("peek-message", **peek)[1].get("messages", []))

    assert still_there() == 6
    all_of_them = {"sequence_numbers": longs(*numbers)}
    assert requests.manage("cancel-scheduled-message", **all_of_them) == (200, {})
    assert still_there() == 0


def test_cancelling_an_unknown_number_is_not_found(client: Client, queue: str) -> None:
    requests = client.requests(f"{queue}/$management")
    for number in (7, 5 << 48 | 1, 200 << 48 | 1, -3):
        status, _ = requests.manage("cancel-scheduled-message", sequence_numbers=longs(number))
        assert (status, requests.condition) == (404, "com.microsoft:message-not-found")


def test_a_topic_keeps_what_is_scheduled_until_it_is_due(
    world: World, client: Client, topic: str
) -> None:
    world.subscription(topic, "s")
    requests = client.requests(f"{topic}/$management")
    text = message("later", annotations=later(world, 60_000))
    assert requests.manage("schedule-message", messages=[{"message": text}])[0] == 200
    peek = {"from_sequence_number": 0, "message_count": 5}
    assert len(requests.manage("peek-message", **peek)[1]["messages"]) == 1  # SCH-5
    of_subscription = client.requests(f"{topic}/Subscriptions/s/$management", name="other")
    assert of_subscription.manage("peek-message", **peek) == (204, {})
    receiver = client.receiver(f"{topic}/Subscriptions/s", credit=5)
    world.settle(for_ms=61_000)
    assert receiver.bodies == ["later"]  # SCH-4


def test_a_send_disabled_entity_schedules_nothing(world: World, client: Client) -> None:
    world.queue("shut", status=EntityStatus.SEND_DISABLED)
    requests = client.requests("shut/$management")
    status, _ = requests.manage("schedule-message", messages=[{"message": message()}])
    assert (status, requests.condition) == (400, "com.microsoft:entity-disabled")  # SCH-8


# --- Duplicates (DUP, P-21) ----------------------------------------------------------------------


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_duplicate_is_accepted_and_dropped(
    world: World, client: Client, partitioned: bool
) -> None:
    world.queue("once", requires_duplicate_detection=True, enable_partitioning=partitioned)
    sender = client.sender("once")
    for text in ("first", "second"):
        assert isinstance(sender.send(message(text, message_id="same")), Accepted)  # DUP-3
    sender.send(message("other", message_id="other"))
    assert sorted(client.receiver("once", credit=5).bodies) == ["first", "other"]


def test_ids_of_different_types_with_one_text_are_duplicates(world: World, client: Client) -> None:
    world.queue("once", requires_duplicate_detection=True)
    sender = client.sender("once")
    sender.send(message("text", message_id="7"))
    sender.send(message("number", message_id=ULong(7)))
    assert client.receiver("once", credit=5).bodies == ["text"]  # D-15


def test_on_a_partitioned_entity_the_key_counts_too(world: World, client: Client) -> None:
    world.queue("once", requires_duplicate_detection=True, enable_partitioning=True)
    sender = client.sender("once")
    for key in ("red", "blue", "red"):
        sender.send(message(key, message_id="same", partition_key=key))
    assert sorted(client.receiver("once", credit=5).bodies) == ["blue", "red"]  # DUP-2


def test_messages_without_id(world: World, client: Client) -> None:
    world.queue("plain", requires_duplicate_detection=True)
    world.queue("spread", requires_duplicate_detection=True, enable_partitioning=True)
    sender = client.sender("plain")
    sender.fill(2)
    assert len(client.receiver("plain", credit=5).deliveries) == 2  # DUP-4
    state = client.sender("spread", "other").send(message())
    assert rejection(state) == "amqp:not-allowed"  # P-21
    assert state.error.description.startswith(  # type: ignore[union-attr]
        "Message to a partitioned entity with duplicate detection enabled must have either"
    )


def test_a_batch_of_different_ids_is_split_by_partition(world: World, client: Client) -> None:
    world.queue("once", requires_duplicate_detection=True, enable_partitioning=True)
    sender = client.sender("once")
    batch = [message(f"m{n}", message_id=f"id-{n}") for n in range(40)]
    assert isinstance(sender.send_batch(*batch), Accepted)  # D-29
    assert isinstance(sender.send_batch(*batch), Accepted)
    deliveries = client.receiver("once", credit=100).deliveries
    assert sorted(body(each.payload) for each in deliveries) == sorted(f"m{n}" for n in range(40))
    numbers = [said(each.payload)["x-opt-sequence-number"] for each in deliveries]
    assert len({partition_of(number) for number in numbers}) > 4


def test_a_split_batch_that_fails_in_part_can_be_repeated(world: World, client: Client) -> None:
    world.queue("once", requires_duplicate_detection=True, enable_partitioning=True)
    world.make_ill("store-1")
    sender = client.sender("once")
    batch = [message(f"m{n}", message_id=f"id-{n}") for n in range(40)]
    assert rejection(sender.send_batch(*batch)) == "com.microsoft:timeout"  # D-29, P-24
    world.disks["store-1"].resume()
    world.settle(for_ms=10_000)
    assert isinstance(sender.send_batch(*batch), Accepted)
    assert len(client.receiver("once", credit=100).deliveries) == 40


def test_a_batch_of_different_keys_is_refused(world: World, client: Client) -> None:
    world.queue("once", requires_duplicate_detection=True, enable_partitioning=True)
    sender = client.sender("once")
    batch = [message(key, message_id=key, partition_key=key) for key in ("a", "b")]
    assert rejection(sender.send_batch(*batch)) == "amqp:not-allowed"  # PRT-7
    mixed = [message("a", message_id="a", partition_key="a"), message("b", message_id="b")]
    assert rejection(sender.send_batch(*mixed)) == "amqp:not-allowed"


# --- Forwarding (FWD) ----------------------------------------------------------------------------


@pytest.mark.parametrize("from_partitioned", [False, True])
@pytest.mark.parametrize("to_partitioned", [False, True])
def test_what_is_forwarded_arrives_once(
    world: World, client: Client, from_partitioned: bool, to_partitioned: bool
) -> None:
    world.queue("end", enable_partitioning=to_partitioned)
    world.queue("start", enable_partitioning=from_partitioned, forward_to="end")
    client.sender("start").fill(50)
    world.settle(for_ms=1_000)
    receiver = client.receiver("end", credit=100)
    assert sorted(receiver.bodies) == sorted(f"m{n}" for n in range(50))  # P-39
    annotations = said(receiver.deliveries[0].payload)
    assert annotations["x-opt-enqueue-sequence-number"] > 0  # FWD-2


def test_a_forwarded_message_keeps_its_key(world: World, client: Client) -> None:
    world.queue("end", enable_partitioning=True)
    world.queue("start", forward_to="end")
    sender, direct = client.sender("start"), client.sender("end", "direct")
    for n in range(5):
        sender.send(message(f"a{n}", partition_key="red"))
        direct.send(message(f"b{n}", partition_key="red"))
    world.settle(for_ms=1_000)
    deliveries = client.receiver("end", credit=100).deliveries
    numbers = [said(each.payload)["x-opt-sequence-number"] for each in deliveries]
    assert len(numbers) == 10
    assert len({partition_of(number) for number in numbers}) == 1  # P-40, FWD-7


def test_the_destination_looks_for_duplicates(world: World, client: Client) -> None:
    world.queue("end", requires_duplicate_detection=True)
    world.queue("start", forward_to="end")
    sender = client.sender("start")
    sender.send(message("a", message_id="same"))
    sender.send(message("b", message_id="same"))
    world.settle(for_ms=1_000)
    assert client.receiver("end", credit=10).bodies == ["a"]  # DUP-6


def test_a_destination_that_is_disabled_sends_to_the_dead_letters(
    world: World, client: Client
) -> None:
    world.queue("end", status=EntityStatus.SEND_DISABLED)
    world.queue("start", forward_to="end")
    client.sender("start").send(message("lost"))
    world.settle(for_ms=2_000)
    receiver = client.receiver("start/$DeadLetterQueue", credit=5)
    assert receiver.bodies == ["lost"]  # FWD-4


def test_an_unavailable_destination_is_waited_for(world: World, client: Client) -> None:
    world.queue("end")
    end = world.catalog.find("end")
    assert end is not None
    # A source in the other store, which stays well.
    start = next(
        path
        for path in (f"start-{n}" for n in range(20))
        if world.queue(path, forward_to="end").placement != end.placement
    )
    world.make_ill(end.placement[0])
    client.sender(start).send(message("patient"))
    world.settle(for_ms=3_000)
    world.disks[end.placement[0]].resume()
    world.settle(for_ms=10_000)
    assert client.receiver("end", credit=5).bodies == ["patient"]  # D-27


def test_forwarded_dead_letters_name_their_source(world: World, client: Client) -> None:
    world.queue("morgue")
    world.queue("orders", forward_dead_letters_to="morgue")
    client.sender("orders").send(message("bad"))
    receiver = client.receiver("orders", credit=1)
    receiver.settle(receiver.deliveries, Rejected())
    world.settle(for_ms=1_000)
    (delivery,) = client.receiver("morgue", "m", credit=1).deliveries
    assert said(delivery.payload)["x-opt-deadletter-source"] == "orders"  # DLQ-4


def test_nobody_receives_where_messages_are_forwarded(world: World, client: Client) -> None:
    world.queue("end")
    world.queue("start", forward_to="end", forward_dead_letters_to="end")
    for path in ("start", "start/$DeadLetterQueue"):
        refusal = client.refusal(client.receiver(path, path).link)
        assert refusal is not None
        assert refusal.condition == "amqp:not-allowed"  # FWD-1, DLQ-4


# --- Idle entities (STA-4) -----------------------------------------------------------------------

IDLE_MS = 5 * 60_000


def wait(client: Client, ms: int) -> None:
    """Let time pass on a connection that is kept alive."""
    for _ in range(ms // 30_000):
        client.world.settle(for_ms=30_000)
        client.engine.tick(client.world.scheduler.now_ms())


def test_an_idle_queue_is_deleted(world: World, client: Client) -> None:
    world.queue("brief", auto_delete_on_idle_ms=IDLE_MS)
    wait(client, IDLE_MS - 30_000)
    client.sender("brief").send(message())
    wait(client, IDLE_MS - 30_000)
    assert world.catalog.find("brief") is not None
    wait(client, 90_000)
    assert world.catalog.find("brief") is None


def test_a_receiver_that_is_there_keeps_an_entity(world: World, client: Client) -> None:
    world.topic("news")
    world.subscription("news", "s", auto_delete_on_idle_ms=IDLE_MS)
    receiver = client.receiver("news/Subscriptions/s", credit=1)
    wait(client, 2 * IDLE_MS)
    assert world.catalog.find_subscription("news", "s") is not None
    receiver.link.detach()
    wait(client, IDLE_MS - 30_000)
    assert world.catalog.find_subscription("news", "s") is not None
    wait(client, 90_000)
    assert world.catalog.find_subscription("news", "s") is None


def test_a_scheduled_message_keeps_its_queue(world: World, client: Client) -> None:
    world.queue("brief", auto_delete_on_idle_ms=IDLE_MS)
    client.sender("brief").send(message(annotations=later(world, 2 * IDLE_MS)))
    wait(client, IDLE_MS + 60_000)
    assert world.catalog.find("brief") is not None


def test_a_peek_is_use(world: World, client: Client) -> None:
    world.queue("brief", auto_delete_on_idle_ms=IDLE_MS)
    requests = client.requests("brief/$management")
    for _ in range(3):
        wait(client, IDLE_MS - 30_000)
        assert requests.manage("peek-message", from_sequence_number=0, message_count=1)[0] == 204
    assert world.catalog.find("brief") is not None
