"""Session receivers and the requests of those who hold a session (amqp.md 11, SES, D-24)."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from busway.amqp.link import Link, LinkRole
from busway.amqp.performatives import Accepted, Error, Modified, Rejected, Source
from busway.amqp.sections import read_properties
from busway.amqp.types import Array, Described, Int, Symbol, Timestamp, UInt, ULong
from busway.gateway.session_receiver import LOCKED_UNTIL, SESSION_FILTER, TICKS_AT_1970
from busway.model.entities import Queue, Rule, SqlFilter
from busway.store.faults import CommitOutcome
from tests.gateway.world import (
    Client,
    Receiver,
    World,
    header,
    longs,
    message,
    message_annotations,
    uuids,
)

GO_FILTER = ULong(0x137000000C)
EVER_MS = 253_402_300_800_000


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def queue(request: pytest.FixtureRequest, world: World) -> str:
    options = {"requires_session": True, "lock_duration_ms": 30_000}
    return world.queue("talks", enable_partitioning=request.param, **options).path


def ask(
    client: Client,
    path: str,
    session_id: Any,
    name: str = "receiver",
    *,
    credit: int = 0,
    timeout_ms: int | None = None,
    delete: bool = False,
) -> Receiver:
    """Attach a session receiver: by id, or None for the next available."""
    properties = {} if timeout_ms is None else {Symbol("com.microsoft:timeout"): UInt(timeout_ms)}
    link = client.attach(
        name,
        LinkRole.RECEIVER,
        source=Source(path, filter={Symbol(SESSION_FILTER): session_id}),
        snd_settle_mode=1 if delete else 0,
        rcv_settle_mode=0 if delete else 1,
        properties=properties,
    )
    receiver = Receiver(client, link)
    if credit:
        receiver.credit(credit)
    return receiver


def session_of(link: Link) -> Any:
    assert link.source is not None
    return (link.source.filter or {})[Symbol(SESSION_FILTER)]


def refusal(client: Client, receiver: Receiver) -> Error:
    found = client.refusal(receiver.link)
    assert found is not None
    return found


def fill(client: Client, path: str, **counts: int) -> None:
    sender = client.sender(path, f"sender-{len(client.events)}")
    for session_id, count in counts.items():
        for n in range(count):
            assert isinstance(
                sender.send(message(f"{session_id}{n}", session_id=session_id)), Accepted
            )


# --- Names (SES-13) ------------------------------------------------------------------------------


def test_ids_that_differ_only_in_case_are_one_session(
    world: World, client: Client, queue: str
) -> None:
    """Sent as *SessionId* and *SESSIONID*, accepted as *sessionId*: in one partition, in order, and
    each message says what its sender wrote."""
    sender = client.sender(queue)
    for session_id in ("SessionId", "SESSIONID"):
        assert isinstance(sender.send(message(session_id, session_id=session_id)), Accepted)
    receiver = ask(client, queue, "sessionId", credit=5)
    assert session_of(receiver.link) == "sessionId"
    assert receiver.bodies == ["SessionId", "SESSIONID"]
    written = [read_properties(each.payload).group_id for each in receiver.deliveries]
    assert written == ["SessionId", "SESSIONID"]
    second = ask(world.connect(), queue, "SESSIONid", "second")
    error = refusal(second.client, second)
    assert error.condition == "com.microsoft:session-cannot-be-locked"
    assert "'SESSIONid'" in (error.description or "")


def test_requests_mean_the_session_however_they_spell_it(client: Client, queue: str) -> None:
    fill(client, queue, SessionId=2)
    ask(client, queue, "sessionId")
    requests = client.requests(f"{queue}/$management")
    assert (
        requests.manage("set-session-state", session_id="SESSIONID", session_state=b"s")[0] == 200
    )
    assert requests.manage("get-session-state", session_id="sessionid") == (
        200,
        {"session-state": b"s"},
    )
    assert requests.manage("renew-session-lock", session_id="SessionID")[0] == 200
    _, answer = requests.manage(
        "peek-message", from_sequence_number=0, message_count=9, session_id="sessionID"
    )
    assert len(answer["messages"]) == 2
    _, listed = requests.manage(
        "get-message-sessions",
        last_updated_time=Timestamp(EVER_MS),
        skip=Int(0),
        top=Int(9),
    )
    assert list(listed["sessions-ids"]) == ["SessionId"]


def test_the_next_session_is_called_as_it_was_first_written(client: Client, queue: str) -> None:
    fill(client, queue, SessionId=1, sessionID=1)
    receiver = ask(client, queue, None, credit=5)
    assert session_of(receiver.link) == "SessionId"
    assert len(receiver.deliveries) == 2


def test_a_deferred_message_is_fetched_by_whoever_holds_the_session_by_any_spelling(
    client: Client, queue: str
) -> None:
    fill(client, queue, SessionId=1)
    receiver = ask(client, queue, "SessionId", credit=1)
    [delivery] = receiver.deliveries
    receiver.settle([delivery], Modified(undeliverable_here=True))
    receiver.link.detach()
    client.world.settle()
    number = message_annotations(delivery.payload)["x-opt-sequence-number"]
    ask(client, queue, "sESSIONiD", "again")
    status, answer = client.requests(f"{queue}/$management").manage(
        "receive-by-sequence-number",
        sequence_numbers=longs(number),
        receiver_settle_mode=UInt(0),
        session_id="sessionid",
    )
    assert (status, len(answer["messages"])) == (200, 1)


def test_a_partition_key_is_case_sensitive_still(world: World, client: Client) -> None:
    """P-17: keys that differ in case may lie in different partitions, and say what they said."""
    world.queue("keyed", enable_partitioning=True)
    sender = client.sender("keyed")
    partitions = set()
    for key in ("Order-7", "order-7"):  # in 12 and 14 of 16
        sender.send(message(partition_key=key))
        [delivery] = client.receiver("keyed", key, credit=1, delete=True).deliveries
        partitions.add(message_annotations(delivery.payload)["x-opt-partition-id"])
    assert partitions == {12, 14}


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_forwarded_message_finds_its_session_however_both_entities_spell(
    world: World, client: Client, partitioned: bool
) -> None:
    """P-40: between an entity of before, for which case matters, and one of today."""
    options = {"requires_session": True, "enable_partitioning": partitioned}
    old = world.catalog.create_queue(Queue(path="old", **options), folds_session_ids=False)
    world.queue("new", **options)
    world.queue("to-old", forward_to="old", enable_partitioning=partitioned)
    to_new = Queue(path="to-new", forward_to="new", enable_partitioning=partitioned)
    world.catalog.create_queue(to_new, folds_session_ids=False)
    assert not old.folds_session_ids
    for way in ("to-old", "to-new"):
        sender = client.sender(way, way)
        for session_id in ("Order", "order"):
            sender.send(message(session_id, session_id=session_id))
    world.settle(for_ms=1_000)
    assert ask(client, "new", "ORDER", "n", credit=5).bodies == ["Order", "order"]
    assert ask(client, "old", "Order", "o1", credit=5).bodies == ["Order"]
    assert ask(client, "old", "order", "o2", credit=5).bodies == ["order"]


def test_a_rule_s_action_gives_a_session_that_is_folded_too(world: World, client: Client) -> None:
    """ACT-4; and a filter sees what the sender wrote."""
    world.topic("news", enable_partitioning=True)
    sql = SqlFilter("sys.SessionId = 'Order'")
    rules = [Rule(name="r", filter=sql, action="SET sys.SessionId = 'Other-' + sys.SessionId")]
    world.subscription("news", "all", rules, requires_session=True)
    sender = client.sender("news")
    for session_id in ("Order", "order"):
        sender.send(message(session_id, session_id=session_id))
    receiver = ask(client, "news/Subscriptions/all", None, credit=5)
    assert session_of(receiver.link) == "Other-Order"
    assert receiver.bodies == ["Order"]


# --- Accepting -----------------------------------------------------------------------------------


def test_a_session_is_accepted_by_its_id_even_if_it_is_empty(
    world: World, client: Client, queue: str
) -> None:
    receiver = ask(client, queue, "a")  # SES-6
    assert client.is_attached(receiver.link)
    assert session_of(receiver.link) == "a"
    assert receiver.link.properties is not None
    ticks = receiver.link.properties[Symbol(LOCKED_UNTIL)]
    assert type(ticks) is int  # a long
    left_ms = (ticks - TICKS_AT_1970) // 10_000 - world.scheduler.now_ms()
    assert 25_000 < left_ms <= 30_000


def test_the_filter_is_echoed_in_the_form_that_the_client_used(client: Client, queue: str) -> None:
    fill(client, queue, b=1)
    by_id = ask(client, queue, Described(GO_FILTER, "a"), "by-id")
    assert session_of(by_id.link) == Described(GO_FILTER, "a")
    following = ask(client, queue, Described(GO_FILTER, None), "next")
    assert session_of(following.link) == Described(GO_FILTER, "b")


def test_a_session_that_is_held_cannot_be_locked(world: World, client: Client, queue: str) -> None:
    ask(client, queue, "a")
    second = ask(world.connect(), queue, "a", "second")
    error = refusal(second.client, second)
    assert error.condition == "com.microsoft:session-cannot-be-locked"  # SES-6
    assert error.description is not None
    assert error.description.startswith("The requested session 'a' cannot be accepted.")


def test_a_plain_receiver_is_refused_and_so_is_a_session_where_there_are_none(
    world: World, client: Client, queue: str
) -> None:
    error = refusal(client, client.receiver(queue, "plain"))
    assert error.condition == "amqp:not-allowed"  # SES-2
    world.queue("flat")
    assert refusal(client, ask(client, "flat", "a", "flat")).condition == "amqp:not-allowed"
    assert client.is_attached(client.receiver(f"{queue}/$DeadLetterQueue", "dead").link)  # SES-12


def test_a_send_without_a_session_is_refused(client: Client, queue: str) -> None:
    state = client.sender(queue).send(message())
    assert isinstance(state, Rejected)  # SES-1
    assert state.error is not None
    assert state.error.condition == "amqp:not-allowed"
    assert "The SessionId was not set on a message" in str(state.error.description)


# --- The next available --------------------------------------------------------------------------


def test_the_next_available_session_is_given_at_once(client: Client, queue: str) -> None:
    fill(client, queue, a=2)
    receiver = ask(client, queue, None, credit=5)  # SES-7
    assert session_of(receiver.link) == "a"
    assert receiver.bodies == ["a0", "a1"]


def test_who_waits_gets_the_session_that_comes(client: Client, queue: str) -> None:
    receiver = ask(client, queue, None)
    assert not client.is_attached(receiver.link)
    fill(client, queue, late=1)
    assert client.is_attached(receiver.link)
    receiver.credit(5)
    assert receiver.bodies == ["late0"]


def test_the_oldest_waiter_comes_first(client: Client, queue: str) -> None:
    waiting = [ask(client, queue, None, f"w{n}") for n in range(3)]
    for n, name in enumerate(("x", "y", "z")):
        fill(client, queue, **{name: 1})
        assert [client.is_attached(each.link) for each in waiting] == [i <= n for i in range(3)]
    assert [session_of(each.link) for each in waiting] == ["x", "y", "z"]


def test_waiting_ends_at_the_deadline_that_the_client_gave(
    world: World, client: Client, queue: str
) -> None:
    receiver = ask(client, queue, None, timeout_ms=5_000)
    asked_ms = world.scheduler.now_ms()
    while client.refusal(receiver.link) is None:
        world.scheduler.run_for(10)
        client.carry()
        assert world.scheduler.now_ms() < asked_ms + 5_050  # at the deadline, not later
    assert refusal(client, receiver).condition == "com.microsoft:timeout"
    assert world.scheduler.now_ms() >= asked_ms + 4_800
    fill(client, queue, late=1)
    assert not client.is_attached(receiver.link)


def test_without_a_deadline_the_wait_is_a_minute(world: World, client: Client, queue: str) -> None:
    receiver = ask(client, queue, None)
    world.settle(for_ms=58_000)
    assert client.refusal(receiver.link) is None
    world.settle(for_ms=3_000)
    assert refusal(client, receiver).condition == "com.microsoft:timeout"


def test_who_goes_away_while_waiting_takes_nothing(
    world: World, client: Client, queue: str
) -> None:
    impatient = ask(client, queue, None, "impatient")
    patient = ask(world.connect(), queue, None, "patient")
    impatient.link.detach()
    lost = ask(world.connect(), queue, None, "lost")
    lost.client.server.lost()
    world.settle()
    fill(client, queue, a=1)
    assert session_of(patient.link) == "a"
    assert not world.gateway.sessions._offers


def test_many_waiters_and_sessions_meet_without_starving_a_partition(world: World) -> None:
    world.queue("talks", requires_session=True, enable_partitioning=True)
    client = world.connect()
    waiting = [ask(client, "talks", None, f"w{n}") for n in range(40)]
    fill(client, "talks", **{f"s{n}": 1 for n in range(60)})
    assert all(client.is_attached(each.link) for each in waiting)
    given = {session_of(each.link) for each in waiting}
    assert len(given) == 40  # SES-3
    for each in waiting:
        each.link.detach()
    world.settle()
    rest = [ask(client, "talks", None, f"r{n}") for n in range(60)]
    assert {session_of(each.link) for each in rest} == {f"s{n}" for n in range(60)}


def test_a_deleted_entity_ends_the_waiting(world: World, client: Client, queue: str) -> None:
    receiver = ask(client, queue, None)
    world.catalog.delete(queue)
    world.settle()
    assert refusal(client, receiver).condition == "amqp:not-found"  # STA-5


# --- Receiving -----------------------------------------------------------------------------------


def test_only_the_session_s_messages_come_in_order(client: Client, queue: str) -> None:
    fill(client, queue, a=3, b=3)
    receiver = ask(client, queue, "b", credit=2)
    assert receiver.bodies == ["b0", "b1"]
    fill(client, queue, b=1)
    receiver.credit(10)
    assert receiver.bodies == ["b0", "b1", "b2", "b0"]  # SES-4


def test_credit_that_waits_is_used_when_the_session_gets_something(
    client: Client, queue: str
) -> None:
    receiver = ask(client, queue, "a", credit=5)
    fill(client, queue, b=1, a=1)
    assert receiver.bodies == ["a0"]


def test_an_abandoned_message_comes_before_later_ones(client: Client, queue: str) -> None:
    fill(client, queue, a=3)
    receiver = ask(client, queue, "a", credit=1)
    assert isinstance(receiver.settle(receiver.deliveries, Modified()), Modified)
    receiver.credit(3)
    assert receiver.bodies == ["a0", "a0", "a1", "a2"]  # SES-4
    assert header(receiver.deliveries[1].payload).delivery_count == 1


def test_completed_messages_are_gone(client: Client, queue: str) -> None:
    fill(client, queue, a=2)
    receiver = ask(client, queue, "a", credit=5)
    assert isinstance(receiver.settle(receiver.deliveries, Accepted()), Accepted)
    receiver.link.detach()
    again = ask(client, queue, "a", "again", credit=5)
    assert again.deliveries == []


def test_a_drain_gives_credit_back(client: Client, queue: str) -> None:
    fill(client, queue, a=2)
    receiver = ask(client, queue, "a")
    receiver.credit(5, drain=True)
    assert receiver.bodies == ["a0", "a1"]
    assert receiver.link.credit == 0


def test_receive_and_delete_works_in_a_session(client: Client, queue: str) -> None:
    fill(client, queue, a=2)
    receiver = ask(client, queue, "a", credit=5, delete=True)
    assert receiver.bodies == ["a0", "a1"]
    assert all(each.settled for each in receiver.deliveries)


# --- Losing and leaving it -----------------------------------------------------------------------


def test_a_lock_that_runs_out_detaches_the_link(world: World, client: Client, queue: str) -> None:
    fill(client, queue, a=1)
    receiver = ask(client, queue, "a", credit=5)
    world.settle(for_ms=31_000)
    assert refusal(client, receiver).condition == "com.microsoft:session-lock-lost"  # SES-8
    again = ask(client, queue, "a", "again", credit=5)
    assert header(again.deliveries[0].payload).delivery_count == 1  # DLV-8


@pytest.mark.parametrize("how", ["detach", "end", "lost"])
def test_who_leaves_frees_the_session_at_once(
    world: World, client: Client, queue: str, how: str
) -> None:
    fill(client, queue, a=2)
    other = world.connect()
    receiver = ask(other, queue, "a", credit=5)
    assert len(receiver.deliveries) == 2
    if how == "detach":
        receiver.link.detach()
    elif how == "end":
        other.session.end()
    else:
        other.server.lost()
    world.settle()
    again = ask(client, queue, "a", "again", credit=5)
    assert again.bodies == ["a0", "a1"]  # SES-9
    assert header(again.deliveries[0].payload).delivery_count == 0  # DLV-8


def test_a_store_that_is_lost_takes_the_lock_with_it(world: World, client: Client) -> None:
    entity = world.queue("talks", requires_session=True)
    receiver = ask(client, "talks", "a", credit=5)
    world.stores[entity.placement[0]].script(CommitOutcome.UNKNOWN_DONE)
    fill(client, "talks", b=1)
    assert refusal(client, receiver).condition == "com.microsoft:session-lock-lost"  # D-5


# --- Requests (management-amqp.md 4 and 5) -------------------------------------------------------


def test_a_session_s_lock_is_renewed(world: World, client: Client, queue: str) -> None:
    receiver = ask(client, queue, "a", credit=5)
    requests = client.requests(f"{queue}/$management")
    for _ in range(3):
        world.settle(for_ms=20_000)
        status, answer = requests.manage("renew-session-lock", session_id="a")
        assert status == 200
        assert type(answer["expiration"]) is Timestamp
    assert client.is_attached(receiver.link)
    assert answer["expiration"] > world.scheduler.now_ms() + 25_000


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("renew-session-lock", {}),
        ("get-session-state", {}),
        ("set-session-state", {"session_state": b"x"}),
        ("receive-by-sequence-number", {"sequence_numbers": longs(1), "receiver_settle_mode": 1}),
    ],
)
def test_only_the_holder_s_connection_may(
    world: World, client: Client, queue: str, operation: str, arguments: dict[str, Any]
) -> None:
    ask(client, queue, "a")
    requests = world.connect().requests(f"{queue}/$management")
    status, _ = requests.manage(operation, session_id="a", **arguments)
    assert (status, requests.condition) == (410, "com.microsoft:session-lock-lost")  # SES-10


def test_a_session_s_state_is_kept_without_messages(
    world: World, client: Client, queue: str
) -> None:
    receiver = ask(client, queue, "a")
    requests = client.requests(f"{queue}/$management")
    assert requests.manage("get-session-state", session_id="a") == (200, {"session-state": None})
    for state in (b"step 1", b"", None, b"step 2"):  # empty is a value
        assert requests.manage("set-session-state", session_id="a", session_state=state)[0] == 200
        assert requests.manage("get-session-state", session_id="a")[1] == {"session-state": state}
    receiver.link.detach()
    other = world.connect()
    ask(other, queue, "a")
    answer = other.requests(f"{queue}/$management").manage("get-session-state", session_id="a")
    assert answer == (200, {"session-state": b"step 2"})  # SES-10


def test_a_state_is_no_larger_than_a_message(client: Client, queue: str) -> None:
    ask(client, queue, "a")
    requests = client.requests(f"{queue}/$management")
    state = bytes(262_145)
    status, _ = requests.manage("set-session-state", session_id="a", session_state=state)
    assert (status, requests.condition) == (403, "amqp:link:message-size-exceeded")  # LIM-13


def test_sessions_are_listed_in_pages(world: World, client: Client, queue: str) -> None:
    fill(client, queue, **{f"s{n:02}": 1 for n in range(25)})
    ask(client, queue, "only-state")
    requests = client.requests(f"{queue}/$management")
    requests.manage("set-session-state", session_id="only-state", session_state=b"x")
    found: list[str] = []
    while True:
        status, answer = requests.manage(
            "get-message-sessions",
            last_updated_time=Timestamp(EVER_MS),
            skip=len(found),
            top=10,
        )
        if status == 204:
            assert requests.condition == "com.microsoft:session-not-found"
            break
        assert type(answer["sessions-ids"]) is Array
        found += answer["sessions-ids"]
        assert answer["skip"] == len(found)
    assert found == ["only-state", *(f"s{n:02}" for n in range(25))]  # SES-11


def test_sessions_are_listed_behind_the_last_that_is_named(client: Client, queue: str) -> None:
    """5.4, as Java asks: it sends the `skip` of the answer before as well."""
    fill(client, queue, a=1, b=1, c=1, d=1)
    requests = client.requests(f"{queue}/$management")

    def behind(last: str, skip: int, top: int = 2) -> list[str]:
        _, answer = requests.manage(
            "get-message-sessions",
            last_updated_time=Timestamp(EVER_MS),
            last_session_id=last,
            skip=skip,
            top=top,
        )
        return list(answer.get("sessions-ids", []))

    assert behind("b", 2) == ["c", "d"]
    assert behind("aa", 0) == ["b", "c"]
    assert behind("d", 4) == []


def test_sessions_are_listed_by_when_their_state_was_set(
    world: World, client: Client, queue: str
) -> None:
    fill(client, queue, quiet=1)
    ask(client, queue, "a")
    requests = client.requests(f"{queue}/$management")
    requests.manage("set-session-state", session_id="a", session_state=b"x")
    now = world.scheduler.now_ms()

    def listed(after_ms: int) -> Any:
        answer = requests.manage(
            "get-message-sessions", last_updated_time=Timestamp(after_ms), skip=0, top=10
        )[1]
        return list(answer.get("sessions-ids", []))

    assert listed(now - 60_000) == ["a"]
    assert listed(now + 1) == []
    assert listed(EVER_MS - 1) == []  # an ordinary time
    assert listed(EVER_MS) == ["a", "quiet"]


def test_peek_in_a_session(client: Client, queue: str) -> None:
    fill(client, queue, a=2, b=3)
    requests = client.requests(f"{queue}/$management")
    peek = {"from_sequence_number": 0, "message_count": 10}
    assert len(requests.manage("peek-message", **peek)[1]["messages"]) == 5  # PEEK-3
    answer = requests.manage("peek-message", **peek, session_id="b")[1]
    assert len(answer["messages"]) == 3
    assert requests.manage("peek-message", **peek, session_id="c") == (204, {})


def test_a_link_stands_for_its_session_where_go_names_none(client: Client, queue: str) -> None:
    fill(client, queue, a=2, b=3)
    ask(client, queue, "b", "the-link")
    requests = client.requests(f"{queue}/$management")
    properties, answer = requests.call(
        {"operation": "com.microsoft:peek-message", "associated-link-name": "the-link"},
        {"from-sequence-number": 0, "message-count": 10},
    )
    assert properties["statusCode"] == 200
    assert len(answer["messages"]) == 3


def test_deferred_messages_of_a_session(client: Client, queue: str) -> None:
    fill(client, queue, a=2)
    receiver = ask(client, queue, "a", credit=5)
    receiver.settle(receiver.deliveries[:1], Modified(undeliverable_here=True))
    requests = client.requests(f"{queue}/$management")
    peek = {"from_sequence_number": 0, "message_count": 1, "session_id": "a"}
    from tests.gateway.world import message_annotations

    peeked = requests.manage("peek-message", **peek)[1]["messages"][0]["message"]
    number = message_annotations(peeked)["x-opt-sequence-number"]
    fetch = {"sequence_numbers": longs(number), "receiver_settle_mode": UInt(1)}
    status, answer = requests.manage("receive-by-sequence-number", **fetch, session_id="a")
    assert status == 200  # DEF-5
    token = answer["messages"][0]["lock-token"]
    done = {"disposition_status": "completed", "session_id": "a"}
    assert requests.manage("update-disposition", **done, lock_tokens=uuids(token.bytes_le)) == (
        200,
        {},
    )
    status, _ = requests.manage("receive-by-sequence-number", **fetch, session_id="a")
    assert (status, requests.condition) == (404, "com.microsoft:message-not-found")


def test_a_settlement_after_the_session_was_left_is_lost(
    world: World, client: Client, queue: str
) -> None:
    fill(client, queue, a=1)
    receiver = ask(client, queue, "a", credit=5)
    token = receiver.deliveries[0].tag
    receiver.link.detach()
    world.settle()
    requests = client.requests(f"{queue}/$management")
    status, _ = requests.manage(
        "update-disposition", disposition_status="completed", lock_tokens=uuids(token)
    )
    assert (status, requests.condition) == (410, "com.microsoft:session-lock-lost")


@pytest.mark.parametrize("named", [{"session_id": "a"}, {}], ids=["by its id", "without it"])
def test_a_message_settled_twice_is_lost_and_not_its_session(
    client: Client, queue: str, named: dict[str, Any]
) -> None:
    """LOCK-5: the session is held, so what was lost is the message's lock."""
    fill(client, queue, a=1)
    receiver = ask(client, queue, "a", credit=5)
    tokens = uuids(receiver.deliveries[0].tag)
    requests = client.requests(f"{queue}/$management")
    complete = {"disposition_status": "completed", "lock_tokens": tokens, **named}
    assert requests.manage("update-disposition", **complete)[0] == 200
    status, _ = requests.manage("update-disposition", **complete)
    assert (status, requests.condition) == (410, "com.microsoft:message-lock-lost")


# --- Subscriptions with sessions -----------------------------------------------------------------


@pytest.mark.parametrize("partitioned", [False, True])
def test_sessions_of_a_subscription(world: World, client: Client, partitioned: bool) -> None:
    world.topic("news", enable_partitioning=partitioned)
    world.subscription("news", "s", requires_session=True)
    fill(client, "news", a=2, b=1)
    client.sender("news", "plain").send(message("stray"))
    path = "news/Subscriptions/s"
    assert ask(client, path, "a", credit=5).bodies == ["a0", "a1"]
    assert session_of(ask(client, path, None, "next").link) == "b"
    dead = client.receiver(f"{path}/$DeadLetterQueue", "dead", credit=5)
    assert dead.bodies == ["stray"]  # SES-1


def test_lim_10_those_who_hold_or_await_sessions_count_too(
    world: World, client: Client, queue: str
) -> None:
    fill(client, queue, a=1)
    with patch("busway.gateway.receiver_counts.RECEIVES_PER_ENTITY_MAX", 2):
        holder = ask(client, queue, "a", "holds")
        ask(client, queue, None, "waits")
        refused = ask(client, queue, "b", "too many")
        assert refusal(client, refused).condition == "amqp:resource-limit-exceeded"
        holder.link.detach()
        world.settle()
        assert client.is_attached(ask(client, queue, "b", "again").link)


def test_ses_10_a_state_without_room_is_refused(world: World, client: Client, queue: str) -> None:
    """LIM-4, as a send would be."""
    ask(client, queue, "a")
    requests = client.requests(f"{queue}/$management")
    with patch.object(Queue, "max_size_bytes", 1_000):
        status, _ = requests.manage("set-session-state", session_id="a", session_state=b"x" * 1_001)
        assert (status, requests.condition) == (403, "amqp:resource-limit-exceeded")
        fits = requests.manage("set-session-state", session_id="a", session_state=b"x" * 1_000)
        assert fits == (200, {})
