"""Nobody who is ready waits while others are served twice (P-26, SES-7), whoever comes and goes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway.amqp.events import TransferReceived
from busway.amqp.link import Link
from busway.amqp.performatives import Accepted
from busway.gateway.namespaces import Namespaces
from busway.model.limits import Tier
from busway.model.message import partition_of
from busway.model.partitioning import partition_of_key
from tests.gateway import short_visits
from tests.gateway.short_visits import PARTITIONS, SESSIONS, TURNS, ask
from tests.gateway.world import World, body, message, message_annotations

# --- Links that take one message and leave -------------------------------------------------------


@pytest.mark.parametrize("accepters", [1, 4])
@pytest.mark.parametrize("partitioned", [False, True])
def test_ses_7_the_session_that_has_waited_longest_is_next_over_all_partitions(
    partitioned: bool, accepters: int
) -> None:
    served = short_visits.next_sessions(partitioned=partitioned, accepters=accepters)
    assert served.sessions[0] == short_visits.session_ids()[0]  # sent first, in the last partition
    times = Counter(served.sessions)
    assert len(times) == SESSIONS
    assert max(times.values()) - min(times.values()) <= 1 + accepters // 4
    if partitioned:
        ids = short_visits.session_ids()
        filled = {partition_of_key(each, PARTITIONS) for each in ids}
        assert set(served.partitions) == filled


@pytest.mark.parametrize("at_once", [1, 4])
def test_p_26_short_links_are_served_by_all_partitions_in_turn(at_once: int) -> None:
    served = short_visits.short_links(at_once=at_once)
    assert set(served.values()) == {TURNS // PARTITIONS, TURNS // PARTITIONS + 1}
    assert len(served) == PARTITIONS


def test_batch_deletes_of_one_message_take_from_all_partitions_in_turn() -> None:
    deleted = short_visits.batch_deletes()
    assert set(deleted.values()) == {TURNS // PARTITIONS, TURNS // PARTITIONS + 1}
    assert len(deleted) == PARTITIONS


def test_gateways_do_not_all_begin_at_the_same_partition() -> None:
    world = World()
    entity = world.queue("orders", enable_partitioning=True)
    firsts = set()
    for _ in range(20):
        other = Namespaces(world.scheduler, world.catalogs, world.brokers).default
        firsts.add(other.partition_turns.order(entity, "of messages")[0])  # type: ignore[arg-type]
    assert len(firsts) > 5


# --- Any links and sessions that come and go, at any number of gateways --------------------------


class Crowd:
    """Clients of several gateways over the same brokers."""

    def __init__(self, gateways: int, partitions: int, **properties: Any) -> None:
        premium = {"tier": Tier.PREMIUM, "partitions": partitions} if partitions in (2, 4) else {}
        self.world = World(**premium)  # type: ignore[arg-type]
        world = self.world
        self.queue = world.queue("crowded", **properties)
        self.clients = [world.connect()]
        for _ in range(gateways - 1):
            other = Namespaces(world.scheduler, world.catalogs, world.brokers)
            self.clients.append(world.connect(namespaces=other))
        self.sender = world.connect().sender("crowded")
        self._names = 0

    def ask(self, gateway: int, *, session: bool) -> Link:
        self._names += 1
        client = self.clients[gateway % len(self.clients)]
        return ask(client, "crowded", f"link-{self._names}", session=session)

    def came(self) -> list[TransferReceived]:
        """What has come since the last look."""
        self.world.settle()
        found = []
        for client in self.clients:
            found += [event for event in client.of(TransferReceived) if not event.settled]
            client.events.clear()
        for event in found:
            event.link.settle([event.delivery_id], Accepted(), settled=True)
        self.world.settle()
        return found


class Waits:
    """Who is ready, and how often each of the others was served meanwhile."""

    def __init__(self, at_most: int) -> None:
        self._at_most = at_most
        self._meanwhile: dict[Any, Counter[Any]] = {}

    def step(self, ready_before: set[Any], served: list[Any]) -> None:
        for waiting in list(self._meanwhile):
            if waiting not in ready_before or waiting in served:
                del self._meanwhile[waiting]
        for waiting in ready_before - set(served):
            meanwhile = self._meanwhile.setdefault(waiting, Counter())
            meanwhile.update(set(served))
            assert max(meanwhile.values(), default=0) <= self._at_most, (waiting, meanwhile)


visits = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 7), st.integers(1, 4)),
    st.tuples(st.just("visit"), st.integers(0, 2), st.integers(1, 3)),
    st.tuples(st.just("stay"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("credit"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("leave"), st.integers(0, 5), st.just(0)),
)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 3),
    st.sampled_from([1, 2, 4, 16]),
    st.lists(st.integers(0, 6), min_size=4, max_size=16),
    st.lists(visits, min_size=10, max_size=60),
)
def test_no_partition_that_is_ready_waits_while_another_is_served_twice(
    gateways: int, partitions: int, first: list[int], program: list[tuple[str, int, int]]
) -> None:
    """At each gateway: so with several, while another is served once by each of them."""
    crowd = Crowd(gateways, partitions, enable_partitioning=partitions > 1)
    world = crowd.world
    ready: Counter[int] = Counter()
    waits = Waits(at_most=gateways)
    staying: list[Link] = []
    keys = {partition_of_key(f"k{n}", partitions): f"k{n}" for n in range(200)}

    def send(partition: int, count: int) -> None:
        for _ in range(count):
            text = message("m", partition_key=keys[partition % partitions])
            assert isinstance(crowd.sender.send(text), Accepted)
        ready[partition % partitions] += count

    for partition, count in enumerate(first):
        send(partition, count)
    for what, which, count in program:
        before = {partition for partition, messages in ready.items() if messages}
        leaving: Link | None = None
        if what == "send":
            send(which * partitions // 8, count)
        elif what == "visit":
            leaving = crowd.ask(which, session=False)
            world.settle()
            leaving.set_credit(count)
        elif what == "stay" and len(staying) < 4:
            staying.append(crowd.ask(which, session=False))
        elif what == "credit" and staying:
            staying[which % len(staying)].set_credit(1)
        elif what == "leave" and staying:
            staying.pop(which % len(staying)).detach()
        served = []
        for event in crowd.came():
            number = message_annotations(event.payload)["x-opt-sequence-number"]
            served.append(partition_of(number))
        ready.subtract(served)
        if leaving is not None:
            leaving.detach()
            world.settle()
        waits.step(before, served)


session_visits = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 9)),
    st.tuples(st.just("visit"), st.integers(0, 2)),
    st.tuples(st.just("hold"), st.integers(0, 2)),
    st.tuples(st.just("leave"), st.integers(0, 5)),
    st.tuples(st.just("four at once"), st.integers(0, 2)),
)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 3),
    st.sampled_from([1, 2, 4, 16]),
    st.lists(st.integers(0, 9), min_size=4, max_size=20),
    st.lists(session_visits, min_size=10, max_size=60),
)
def test_ses_7_no_session_that_is_ready_waits_while_another_is_served_twice(
    gateways: int, partitions: int, first: list[int], program: list[tuple[str, int]]
) -> None:
    crowd = Crowd(gateways, partitions, enable_partitioning=partitions > 1, requires_session=True)
    messages: Counter[str] = Counter()
    waits = Waits(at_most=1)
    held: dict[Link, str] = {}

    def send(session: int) -> None:
        session_id = f"s{session}"
        assert isinstance(crowd.sender.send(message(session_id, session_id=session_id)), Accepted)
        messages[session_id] += 1

    for session in first:
        send(session)
    for what, which in program:
        before = {each for each, count in messages.items() if count} - set(held.values())
        asked: list[Link] = []
        if what == "send":
            send(which)
        elif what == "leave" and held:
            link = list(held)[which % len(held)]
            del held[link]
            link.detach()
        elif what in ("visit", "four at once") or (what == "hold" and len(held) < 4):
            count = 4 if what == "four at once" else 1
            asked = [crowd.ask(which + n, session=True) for n in range(count)]
        served = []
        for event in crowd.came():
            session_id = body(event.payload)
            messages[session_id] -= 1
            if event.link in asked:
                served.append(session_id)
        assert len(served) == min(len(asked), len(before))
        for link in asked:
            if what == "hold" and link.is_attached:
                held[link] = served[0]
            else:
                link.detach()
        crowd.came()
        waits.step(before, served)
