"""Links that take one message and leave, again and again: who is served?

Sessions are accepted as *next available*, and each that was served is filled again, so that there
is always more than one to choose from. `bench/fairness.py` prints what comes of it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from busway.amqp.events import TransferReceived
from busway.amqp.link import Link, LinkRole
from busway.amqp.performatives import Accepted, Source
from busway.amqp.types import Symbol, Timestamp
from busway.gateway.session_receiver import SESSION_FILTER
from busway.model.message import partition_of
from busway.model.partitioning import partition_of_key
from tests.gateway.world import Client, World, message, message_annotations

TURNS = 60
SESSIONS = 20
PARTITIONS = 16


@dataclass
class Served:
    sessions: list[str] = field(default_factory=list)
    """In the order in which they came."""
    partitions: Counter[int] = field(default_factory=Counter)


def ask(client: Client, path: str, name: str, *, session: bool) -> Link:
    """Attach with a credit of one, without waiting for the answer."""
    source = Source(path, filter={Symbol(SESSION_FILTER): None}) if session else Source(path)
    link = client.session.attach(name, LinkRole.RECEIVER, source=source, rcv_settle_mode=1)
    client.session.write(_one_credit(link))
    return link


def _one_credit(link: Link) -> object:
    link.credit = 1
    return link.flow()


def take(client: Client, links: list[Link]) -> list[TransferReceived]:
    """What they got; completed, and the links are gone."""
    client.world.settle()
    got = [event for event in client.of(TransferReceived) if event.link in links]
    client.events.clear()
    for event in got:
        event.link.settle([event.delivery_id], Accepted(), settled=True)
    for link in links:
        link.detach()
    client.world.settle()
    return got


def partition(event: TransferReceived) -> int:
    return partition_of(message_annotations(event.payload)["x-opt-sequence-number"])


def session_ids() -> list[str]:
    """The first one lies in the last partition, and is sent first."""
    ids = [f"session-{n}" for n in range(1_000)]
    high = next(each for each in ids if partition_of_key(each, PARTITIONS) == PARTITIONS - 1)
    return [high, *(each for each in ids if each != high)][:SESSIONS]


def next_sessions(*, partitioned: bool, accepters: int) -> Served:
    world = World()
    world.queue("talks", requires_session=True, enable_partitioning=partitioned)
    client = world.connect()
    sender = client.sender("talks")
    for each in session_ids():
        sender.send(message(each, session_id=each))
        sender.send(message(each, session_id=each))
    served = Served()
    while len(served.sessions) < TURNS:
        names = [f"accepter-{len(served.sessions) + n}" for n in range(accepters)]
        links = [ask(client, "talks", name, session=True) for name in names]
        for event in take(client, links):
            source = event.link.source
            assert source is not None
            session_id = str((source.filter or {})[Symbol(SESSION_FILTER)])
            served.sessions.append(session_id)
            served.partitions[partition(event)] += 1
            sender.send(message(session_id, session_id=session_id))
    return served


def short_links(*, at_once: int) -> Counter[int]:
    """By partition: how many messages came."""
    client = _filled()
    served: Counter[int] = Counter()
    while served.total() < TURNS:
        names = [f"link-{served.total() + n}" for n in range(at_once)]
        links = [ask(client, "orders", name, session=False) for name in names]
        served.update(partition(event) for event in take(client, links))
    return served


def batch_deletes() -> Counter[int]:
    """By partition: how many messages are gone after many deletions of one."""
    client = _filled()
    world = client.world
    requests = client.requests("orders/$management")
    for _ in range(TURNS):
        body = {"message-count": 1, "enqueued-time-utc": Timestamp(world.scheduler.now_ms() + 1)}
        properties, _ = requests.call({"operation": "com.microsoft:batch-delete-messages"}, body)
        assert properties["statusCode"] == 200
    deleted: Counter[int] = Counter()
    entity = world.catalog.find("orders")
    assert entity is not None
    for index, store_id in enumerate(entity.placement):
        for counters in world.brokers[store_id].counters(entity.incarnation, index).values():
            deleted[index] += TURNS - counters.active
    return +deleted


def _filled() -> Client:
    world = World()
    world.queue("orders", enable_partitioning=True)
    client = world.connect()
    client.sender("orders").fill(PARTITIONS * TURNS)
    return client
