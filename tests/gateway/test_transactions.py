"""Transactions as a client sees them (amqp.md 14, TXN, P-33 to P-38, D-28)."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from busway.amqp.link import LinkRole
from busway.amqp.performatives import (
    Accepted,
    Coordinator,
    Declared,
    DeliveryState,
    Error,
    Modified,
    Rejected,
    TransactionalState,
)
from busway.amqp.sections import encode_message
from busway.amqp.session import Session
from busway.amqp.types import Described, Symbol, Timestamp, ULong
from busway.model.entities import EntityStatus, Queue, SqlFilter
from busway.model.message import partition_of
from busway.store.faults import CommitOutcome
from tests.gateway.world import (
    Client,
    Receiver,
    Sender,
    World,
    header,
    longs,
    message,
    message_annotations,
    uuids,
)


class Control(Sender):
    """A control link and what is asked on it."""

    def __init__(self, client: Client, name: str = "coordinator", session: Any = None) -> None:
        self.session = session or client.session
        link = client.attach(name, LinkRole.SENDER, target=Coordinator(), session=self.session)
        super().__init__(client, link)

    def declare(self) -> Txn:
        state = self.send(encode_message(body=Described(ULong(0x31), [None])))
        assert isinstance(state, Declared)
        return Txn(self, state.txn_id)


class Txn:
    def __init__(self, control: Control, txn_id: bytes) -> None:
        self.control = control
        self.txn_id = txn_id
        self.state = TransactionalState(txn_id)

    def send(self, sender: Sender, *payloads: bytes) -> Any:
        """The outcome inside the transaction."""
        if len(payloads) > 1:
            state = sender.send_batch(*payloads, state=self.state)
        else:
            state = sender.send(payloads[0], state=self.state)
        return self._unwrapped(state)

    def settle(self, receiver: Receiver, deliveries: Any, outcome: Any) -> Any:
        state = receiver.settle(deliveries, TransactionalState(self.txn_id, outcome))
        return self._unwrapped(state)

    def _unwrapped(self, state: DeliveryState | None) -> Any:
        if isinstance(state, TransactionalState):
            assert state.txn_id == self.txn_id
            return state.outcome
        assert isinstance(state, Rejected)  # an error is as everywhere (TXN-6)
        return state

    def discharge(self, *, fail: bool = False) -> Any:
        body = Described(ULong(0x32), [self.txn_id, fail])
        return self.control.send(encode_message(body=body))

    def commit(self) -> None:
        state = self.discharge()
        assert isinstance(state, Accepted), state

    def is_doomed(self) -> None:
        """TXN-6: after a refused operation it can only be rolled back."""
        assert condition(self.discharge()) == "amqp:transaction:rollback"


def error(state: Any) -> Error:
    assert isinstance(state, Rejected), state
    assert state.error is not None
    return state.error


def condition(state: Any) -> str:
    return error(state).condition


@pytest.fixture
def control(client: Client) -> Control:
    return Control(client)


def other_session(client: Client) -> Session:
    return client.engine.begin()


# --- Declare and discharge -----------------------------------------------------------------------


def test_nothing_is_visible_before_the_discharge(
    client: Client, control: Control, queue: str
) -> None:
    sender = client.sender(queue)
    txn = control.declare()
    for n in range(3):
        assert isinstance(txn.send(sender, message(f"m{n}", partition_key="k")), Accepted)
    receiver = client.receiver(queue, credit=10)
    assert receiver.deliveries == []  # TXN-2
    txn.commit()
    assert receiver.bodies == ["m0", "m1", "m2"]  # P-35


def test_a_rollback_leaves_nothing(client: Client, control: Control, queue: str) -> None:
    sender = client.sender(queue)
    txn = control.declare()
    txn.send(sender, message(partition_key="k"))
    assert isinstance(txn.discharge(fail=True), Accepted)
    assert client.receiver(queue, credit=10).deliveries == []
    assert condition(txn.discharge()) == "amqp:transaction:unknown-id"
    assert condition(txn.send(sender, message(partition_key="k"))) == "amqp:transaction:unknown-id"


def test_an_empty_transaction_commits(control: Control) -> None:
    control.declare().commit()


def test_an_unknown_transaction_has_the_service_s_text(
    client: Client, control: Control, queue: str
) -> None:
    state = Txn(control, b"nobody knows me!").discharge()
    assert condition(state) == "amqp:transaction:unknown-id"
    assert str(error(state).description).startswith(
        "Transaction hasn't been declared yet, or has already been discharged"
    )


def test_a_coordinator_takes_nothing_else(control: Control) -> None:
    assert condition(control.send(encode_message(body="hello"))) == "amqp:decode-error"
    control.declare().commit()


def test_the_coordinator_needs_no_token_but_what_is_done_in_a_transaction_does(
    world: World,
) -> None:
    """Java attaches it before it puts its first token."""
    world.queue("guarded")
    client = world.connect(token=False)
    assert Control(client).declare().txn_id
    refusal = client.refusal(client.sender("guarded").link)
    assert refusal is not None
    assert refusal.condition == "amqp:unauthorized-access"


@pytest.mark.parametrize("how", ["detach", "end", "lost"])
def test_whatever_ends_the_control_link_rolls_back(
    world: World, client: Client, queue: str, how: str
) -> None:
    other = world.connect()
    control = Control(other, session=other_session(other))
    txn = control.declare()
    txn.send(other.sender(queue), message(partition_key="k"))
    if how == "detach":
        control.link.detach()
    elif how == "end":
        control.session.end()
    else:
        other.server.lost()
    world.settle()
    assert other.server.transactions == {}  # TXN-4
    assert world.gateway.budget.used_bytes == 0
    assert client.receiver(queue, credit=10).deliveries == []


def test_two_minutes_after_the_first_operation_it_is_over(
    world: World, client: Client, control: Control, queue: str
) -> None:
    txn = control.declare()
    world.settle(for_ms=100_000)
    txn.send(client.sender(queue), message(partition_key="k"))
    world.settle(for_ms=100_000)
    assert isinstance(txn.send(client.sender(queue, "b"), message(partition_key="k")), Accepted)
    world.settle(for_ms=21_000)
    assert condition(txn.discharge()) == "amqp:transaction:timeout"  # TXN-4
    assert client.receiver(queue, credit=10).deliveries == []
    assert world.gateway.budget.used_bytes == 0


def test_a_hundred_messages_and_not_one_more(client: Client, control: Control, queue: str) -> None:
    sender = client.sender(queue)
    txn = control.declare()
    batch = [message(f"m{n}", partition_key="k") for n in range(60)]
    assert isinstance(txn.send(sender, *batch), Accepted)
    state = txn.send(sender, *batch)
    assert "can't send more than 100 messages in a single transaction" in str(
        error(state).description
    )  # LIM-5
    txn.is_doomed()
    txn = control.declare()
    assert isinstance(txn.send(sender, *batch), Accepted)
    assert isinstance(txn.send(sender, *batch[:40]), Accepted)
    txn.commit()
    assert len(client.receiver(queue, credit=200).deliveries) == 100


# --- Settlements ---------------------------------------------------------------------------------


def test_send_and_complete_together(client: Client, control: Control, queue: str) -> None:
    sender = client.sender(queue)
    sender.send(message("in", partition_key="k"))
    receiver = client.receiver(queue, credit=1)
    txn = control.declare()
    assert isinstance(txn.settle(receiver, receiver.deliveries, Accepted()), Accepted)
    assert isinstance(txn.send(sender, message("out", partition_key="k")), Accepted)
    txn.commit()
    assert client.receiver(queue, "again", credit=10).bodies == ["out"]


def test_a_rolled_back_settlement_leaves_the_lock(
    world: World, client: Client, control: Control, queue: str
) -> None:
    client.sender(queue).send(message("in"))
    receiver = client.receiver(queue, credit=1)
    txn = control.declare()
    txn.settle(receiver, receiver.deliveries, Accepted())
    txn.discharge(fail=True)
    token = receiver.deliveries[0].tag
    requests = client.requests(f"{queue}/$management")
    assert requests.manage("renew-lock", lock_tokens=uuids(token))[0] == 200  # TXN-2
    world.settle(for_ms=61_000)
    again = client.receiver(queue, "again", credit=1)
    assert header(again.deliveries[0].payload).delivery_count == 1


@pytest.mark.parametrize(
    ("outcome", "where"),
    [(Modified(), ""), (Rejected(), "/$DeadLetterQueue")],
)
def test_abandon_and_dead_letter_in_a_transaction(
    client: Client, control: Control, queue: str, outcome: Any, where: str
) -> None:
    client.sender(queue).send(message("in"))
    receiver = client.receiver(queue, credit=1)
    txn = control.declare()
    assert type(txn.settle(receiver, receiver.deliveries, outcome)) is type(outcome)
    txn.commit()
    assert client.receiver(f"{queue}{where}", "again", credit=1).bodies == ["in"]  # TXN-1


def test_a_lost_lock_rolls_everything_back(
    world: World, client: Client, control: Control, queue: str
) -> None:
    sender = client.sender(queue)
    sender.send(message("in", partition_key="k"))
    receiver = client.receiver(queue, credit=1)
    txn = control.declare()
    txn.send(sender, message("out", partition_key="k"))
    txn.settle(receiver, receiver.deliveries, Accepted())
    world.settle(for_ms=61_000)
    assert condition(txn.discharge()) == "amqp:transaction:rollback"  # D-28
    assert client.receiver(queue, "again", credit=10).bodies == ["in"]


def test_a_failed_commit_is_a_rollback(world: World, client: Client, control: Control) -> None:
    entity = world.queue("orders")
    txn = control.declare()
    txn.send(client.sender("orders"), message())
    world.stores[entity.placement[0]].script(CommitOutcome.REFUSED)
    assert condition(txn.discharge()) == "amqp:transaction:rollback"
    assert client.receiver("orders", credit=10).deliveries == []


def test_a_session_s_messages_in_a_transaction(
    world: World, client: Client, control: Control
) -> None:
    from tests.gateway.test_sessions import ask

    world.queue("talks", requires_session=True, enable_partitioning=True)
    sender = client.sender("talks")
    sender.send(message("in", session_id="a"))
    receiver = ask(client, "talks", "a", credit=5)
    txn = control.declare()
    txn.settle(receiver, receiver.deliveries, Accepted())
    assert isinstance(txn.send(sender, message("out", session_id="a")), Accepted)
    txn.commit()
    assert receiver.bodies == ["in", "out"]


def test_a_send_that_is_too_large_ends_its_transaction(
    client: Client, control: Control, queue: str
) -> None:
    """TXN-6: a client that does not look at the answer must not lose it unseen."""
    sender = client.sender(queue)
    txn = control.declare()
    txn.send(sender, message("a", partition_key="k"))
    too_large = txn.send(sender, message("b", partition_key="k", size=300_000))
    assert condition(too_large) == "amqp:link:message-size-exceeded"
    txn.is_doomed()
    assert client.receiver(queue, credit=10).deliveries == []


def test_a_settlement_of_what_is_settled_already_ends_its_transaction(
    client: Client, control: Control, queue: str
) -> None:
    """TXN-6: of two transactions with the same message, only one is carried out."""
    client.sender(queue).fill(1)
    receiver = client.receiver(queue, credit=1)
    first, second = control.declare(), control.declare()
    assert isinstance(first.settle(receiver, receiver.deliveries, Accepted()), Accepted)
    refused = second.settle(receiver, receiver.deliveries, Modified(delivery_failed=True))
    assert condition(refused) == "com.microsoft:message-lock-lost"
    second.is_doomed()
    first.commit()


# --- One partition, one key ----------------------------------------------------------------------


def test_on_a_partitioned_entity_every_send_has_a_key(
    world: World, client: Client, control: Control
) -> None:
    world.queue("spread", enable_partitioning=True)
    sender = client.sender("spread")
    txn = control.declare()
    txn.send(sender, message("a", partition_key="k"))
    assert condition(txn.send(sender, message("b"))) == "amqp:not-allowed"  # P-33
    assert condition(txn.discharge()) == "amqp:transaction:rollback"
    assert client.receiver("spread", credit=10).deliveries == []


def test_a_message_id_is_a_key_where_duplicates_are_detected(
    world: World, client: Client, control: Control
) -> None:
    world.queue("once", enable_partitioning=True, requires_duplicate_detection=True)
    txn = control.declare()
    assert isinstance(txn.send(client.sender("once"), message("a", message_id="x")), Accepted)
    txn.commit()
    assert client.receiver("once", credit=10).bodies == ["a"]  # P-33


def test_all_keys_of_a_transaction_are_the_same(
    world: World, client: Client, control: Control
) -> None:
    world.queue("spread", enable_partitioning=True)
    sender = client.sender("spread")
    txn = control.declare()
    txn.send(sender, message("a", partition_key="k"))
    state = txn.send(sender, message("b", partition_key="l"))
    assert condition(state) == "amqp:not-allowed"  # P-34
    assert "cannot span multiple entities or partitions" in str(error(state).description)
    txn.is_doomed()
    assert client.receiver("spread", credit=10).bodies == []


@pytest.mark.parametrize("partitioned", [False, True])
def test_several_sessions_only_on_a_conventional_entity(
    world: World, client: Client, control: Control, partitioned: bool
) -> None:
    world.queue("talks", requires_session=True, enable_partitioning=partitioned)
    sender = client.sender("talks")
    txn = control.declare()
    assert isinstance(txn.send(sender, message("a", session_id="a")), Accepted)
    state = txn.send(sender, message("b", session_id="b"))
    if partitioned:
        assert condition(state) == "amqp:not-allowed"  # P-38
        txn.is_doomed()
    else:
        assert isinstance(state, Accepted)
        txn.commit()


@pytest.mark.parametrize(
    "wrong", [message("c"), message("d", session_id="a", partition_key="x")], ids=["none", "two"]
)
def test_p_37_a_message_for_a_session_entity_has_its_session_and_no_other_key(
    world: World, client: Client, control: Control, wrong: bytes
) -> None:
    world.queue("talks", requires_session=True)
    txn = control.declare()
    assert condition(txn.send(client.sender("talks"), wrong)) == "amqp:not-allowed"
    txn.is_doomed()


def test_a_settlement_in_another_partition_is_refused(
    world: World, client: Client, control: Control
) -> None:
    world.queue("spread", enable_partitioning=True)
    client.sender("spread").fill(32)
    receiver = client.receiver("spread", credit=32)
    by_partition: dict[int, Any] = {}
    for each in receiver.deliveries:
        number = message_annotations(each.payload)["x-opt-sequence-number"]
        by_partition.setdefault(partition_of(number), each)
    first, second = list(by_partition.values())[:2]
    txn = control.declare()
    assert isinstance(txn.settle(receiver, [first], Accepted()), Accepted)
    state = txn.settle(receiver, [second], Accepted())
    assert condition(state) == "amqp:not-allowed"  # PRT-6, D-28
    txn.is_doomed()


def test_duplicates_of_an_aborted_transaction_are_none(
    world: World, client: Client, control: Control
) -> None:
    world.queue("once", requires_duplicate_detection=True)
    sender = client.sender("once")
    txn = control.declare()
    txn.send(sender, message("aborted", message_id="x"))
    txn.discharge(fail=True)
    sender.send(message("first", message_id="x"))
    assert client.receiver("once", credit=5).bodies == ["first"]  # DUP-7


# --- Several entities ----------------------------------------------------------------------------


def test_outside_the_coordinator_s_session_a_transaction_has_one_entity(
    world: World, client: Client
) -> None:
    world.queue("a")
    world.queue("b")
    control = Control(client, session=other_session(client))
    txn = control.declare()
    txn.send(client.sender("a", "a"), message())
    state = txn.send(client.sender("b", "b"), message())
    assert condition(state) == "amqp:not-allowed"
    assert str(error(state).description).startswith(
        "Local transactions cannot span multiple top-level entities such as queue or topic"
    )


@pytest.mark.parametrize("partitioned", [False, True])
def test_links_of_the_coordinator_s_session_may_be_combined(
    world: World, client: Client, control: Control, partitioned: bool
) -> None:
    world.queue("in", enable_partitioning=partitioned)
    world.queue("out", enable_partitioning=partitioned)
    client.sender("in").send(message("work", partition_key="k"))
    receiver = client.receiver("in", credit=1)
    sender = client.sender("out", "out")
    txn = control.declare()
    assert isinstance(txn.settle(receiver, receiver.deliveries, Accepted()), Accepted)
    assert isinstance(txn.send(sender, message("done")), Accepted)
    results = client.receiver("out", "results", credit=5)
    world.settle(for_ms=1_000)
    assert results.deliveries == []
    txn.commit()
    world.settle(for_ms=1_000)
    assert results.bodies == ["done"]  # TXN-3
    assert client.receiver("in", "again", credit=5).deliveries == []


def test_a_settlement_elsewhere_is_refused_in_any_mode(
    world: World, client: Client, control: Control
) -> None:
    world.queue("a")
    world.queue("b")
    client.sender("b", "b").send(message())
    receiver = client.receiver("b", credit=1)
    txn = control.declare()
    txn.send(client.sender("a", "a"), message())
    assert condition(txn.settle(receiver, receiver.deliveries, Accepted())) == "amqp:not-allowed"


def test_a_subscription_and_its_topic_are_one_top_level_entity(
    world: World, client: Client
) -> None:
    world.topic("news")
    world.subscription("news", "s")
    sender = client.sender("news")
    sender.send(message("first"))
    receiver = client.receiver("news/Subscriptions/s", credit=5)
    txn = Control(client, session=other_session(client)).declare()
    txn.settle(receiver, receiver.deliveries, Accepted())
    assert isinstance(txn.send(sender, message("second")), Accepted)
    txn.commit()
    assert receiver.bodies == ["first", "second"]  # TXN-3


VIA = Symbol("com.microsoft:transfer-destination-address")


@pytest.mark.parametrize("partitioned", [False, True])
def test_send_via_another_entity(world: World, client: Client, partitioned: bool) -> None:
    world.queue("in", enable_partitioning=partitioned)
    world.queue("out")
    client.sender("in").send(message("work", partition_key="k"))
    receiver = client.receiver("in", credit=1)
    via = client.sender("in", "via", properties={VIA: "out"})
    assert via.link.properties is not None
    assert via.link.properties[VIA] == "out"
    txn = Control(client, session=other_session(client)).declare()
    txn.settle(receiver, receiver.deliveries, Accepted())
    keyed = message("done", annotations={"x-opt-via-partition-key": "k"})
    assert isinstance(txn.send(via, keyed), Accepted)  # TXN-5
    txn.commit()
    world.settle(for_ms=1_000)
    assert client.receiver("out", "out", credit=5).bodies == ["done"]


def test_send_via_without_a_transaction(world: World, client: Client) -> None:
    world.queue("in")
    world.queue("out")
    via = client.sender("in", "via", properties={VIA: "out"})
    assert isinstance(via.send(message("hello")), Accepted)
    world.settle(for_ms=1_000)
    assert client.receiver("out", "out", credit=5).bodies == ["hello"]
    assert client.receiver("in", "in", credit=5).deliveries == []


def test_what_is_scheduled_stays_scheduled_where_it_is_sent_via(
    world: World, client: Client
) -> None:
    world.queue("in")
    world.queue("out")
    via = client.sender("in", "via", properties={VIA: "out"})
    due = Timestamp(world.scheduler.now_ms() + 60_000)
    via.send(message("later", annotations={"x-opt-scheduled-enqueue-time": due}))
    receiver = client.receiver("out", "out", credit=5)
    world.settle(for_ms=10_000)
    assert receiver.deliveries == []
    world.settle(for_ms=60_000)
    assert receiver.bodies == ["later"]


def test_what_cannot_be_transferred_is_a_transfer_dead_letter(world: World, client: Client) -> None:
    world.queue("in")
    world.queue("out", status=EntityStatus.SEND_DISABLED)
    via = client.sender("in", "via", properties={VIA: "out"})
    assert isinstance(via.send(message("lost")), Accepted)
    world.settle(for_ms=1_000)
    dead = client.receiver("in/$Transfer/$DeadLetterQueue", "dead", credit=5)
    assert dead.bodies == ["lost"]  # FWD-5
    world.catalog.delete("out")
    assert condition(via.send(message("nowhere"))) == "amqp:not-found"


def test_fwd_5_a_full_destination_is_an_error_for_who_sends_via(
    world: World, client: Client
) -> None:
    """And nothing of it is in a dead-letter queue."""
    world.queue("in")
    world.queue("out")
    client.sender("out").fill(1)
    via = client.sender("in", "via", properties={VIA: "out"})
    with patch.object(Queue, "max_size_bytes", 200):
        refused = via.send(message("x" * 200))
        assert condition(refused) == "amqp:resource-limit-exceeded"
    world.settle(for_ms=1_000)
    assert client.receiver("in/$Transfer/$DeadLetterQueue", "tdlq", credit=5).bodies == []
    assert client.receiver("in/$DeadLetterQueue", "dlq", credit=5).bodies == []
    assert isinstance(via.send(message("fits")), Accepted)


@pytest.mark.parametrize("partitioned", [False, True])
def test_fwd_5_a_full_destination_rolls_a_transaction_back(
    world: World, client: Client, control: Control, partitioned: bool
) -> None:
    """D-28: quotas are looked at when it is discharged. What it settled is still there."""
    world.queue("in")
    world.queue("out", enable_partitioning=partitioned)
    client.sender("in").fill(1)
    receiver = client.receiver("in", credit=1)
    via = client.sender("in", "via", properties={VIA: "out"})
    txn = control.declare()
    txn.settle(receiver, receiver.deliveries, Accepted())
    assert isinstance(txn.send(via, message("x" * 300, partition_key="k")), Accepted)
    with patch.object(Queue, "max_size_bytes", 200):
        client.sender("out", "fills it").send(message("y" * 100, partition_key="k"))
        outcome = txn.discharge()
    assert condition(outcome) == "amqp:transaction:rollback"
    assert "The maximum entity size has been reached" in outcome.error.description
    world.settle(for_ms=1_000)
    requests = client.requests("in/$management")
    status, _ = requests.manage("peek-message", from_sequence_number=0, message_count=5)
    assert status == 200


def test_fwd_5_a_destination_that_was_deleted_rolls_a_transaction_back(
    world: World, client: Client, control: Control
) -> None:
    world.queue("in")
    world.queue("out")
    via = client.sender("in", "via", properties={VIA: "out"})
    txn = control.declare()
    assert isinstance(txn.send(via, message("x")), Accepted)
    world.catalog.delete("out")
    assert condition(txn.discharge()) == "amqp:transaction:rollback"
    assert client.receiver("in/$Transfer/$DeadLetterQueue", "tdlq", credit=5).bodies == []


def test_send_via_takes_the_right_to_send_to_both(world: World) -> None:
    world.queue("in")
    world.queue("out")
    client = world.connect(token=False)
    client.put_token("in")
    link = client.sender("in", "via", properties={VIA: "out"}).link
    refusal = client.refusal(link)
    assert refusal is not None
    assert refusal.condition == "amqp:unauthorized-access"  # amqp.md 18


# --- Requests ------------------------------------------------------------------------------------


def test_schedule_in_a_transaction(
    world: World, client: Client, control: Control, queue: str
) -> None:
    requests = client.requests(f"{queue}/$management")
    due = Timestamp(world.scheduler.now_ms() + 30_000)
    text = message("later", partition_key="k", annotations={"x-opt-scheduled-enqueue-time": due})
    for fail in (True, False):
        txn = control.declare()
        requests.state = txn.state
        status, answer = requests.manage("schedule-message", messages=[{"message": text}])
        assert status == 200
        requests.state = None
        (number,) = answer["sequence-numbers"]
        cancel = {"sequence_numbers": longs(number)}
        assert requests.manage("cancel-scheduled-message", **cancel)[0] == 404
        assert isinstance(txn.discharge(fail=fail), Accepted)
    peek = requests.manage("peek-message", from_sequence_number=0, message_count=5)[1]
    (peeked,) = [message_annotations(each["message"]) for each in peek["messages"]]
    assert peeked["x-opt-sequence-number"] == number  # the one that the client was told
    assert requests.manage("cancel-scheduled-message", **cancel)[0] == 200


def test_update_disposition_in_a_transaction(client: Client, control: Control, queue: str) -> None:
    client.sender(queue).fill(1)
    receiver = client.receiver(queue, credit=1)
    requests = client.requests(f"{queue}/$management")
    txn = control.declare()
    requests.state = txn.state
    complete = {
        "disposition_status": "completed",
        "lock_tokens": uuids(receiver.deliveries[0].tag),
    }
    assert requests.manage("update-disposition", **complete) == (200, {})
    requests.state = None
    peek = {"from_sequence_number": 0, "message_count": 5}
    assert requests.manage("peek-message", **peek)[0] == 200
    txn.commit()
    assert requests.manage("peek-message", **peek)[0] == 204


def test_rules_change_with_a_transaction_on_a_conventional_topic(
    world: World, client: Client, control: Control
) -> None:
    world.topic("news")
    subscription = world.subscription("news", "s")
    requests = client.requests(f"{subscription.path}/$management")
    for fail in (True, False):
        txn = control.declare()
        requests.state = txn.state
        described = {"sql-filter": {"expression": "1=0"}}
        added = requests.manage("add-rule", rule_name="r", rule_description=described)
        assert added == (200, {})
        assert requests.manage("remove-rule", rule_name="$Default") == (200, {})
        assert [rule.name for rule in world.catalog.rules(subscription)] == ["$Default"]
        assert isinstance(txn.discharge(fail=fail), Accepted)
    assert [rule.name for rule in world.catalog.rules(subscription)] == ["r"]  # D-28


def test_a_rule_can_be_replaced_in_one_transaction(
    world: World, client: Client, control: Control
) -> None:
    """D-28: what comes later in a transaction sees what came before."""
    world.topic("news")
    subscription = world.subscription("news", "s")
    requests = client.requests(f"{subscription.path}/$management")
    txn = control.declare()
    requests.state = txn.state
    described = {"sql-filter": {"expression": "1=0"}}
    replace = {"rule_name": "$Default", "rule_description": described}
    assert requests.manage("remove-rule", rule_name="$default") == (200, {})
    assert requests.manage("add-rule", **replace) == (200, {})
    txn.commit()
    (rule,) = world.catalog.rules(subscription)
    assert rule.filter == SqlFilter("1=0")


def test_a_rule_cannot_be_added_or_removed_twice_in_one_transaction(
    world: World, client: Client, control: Control
) -> None:
    world.topic("news")
    requests = client.requests(f"{world.subscription('news', 's').path}/$management")
    described = {"sql-filter": {"expression": "1=0"}}
    for call, status in (
        (("add-rule", {"rule_name": "r", "rule_description": described}), 409),
        (("remove-rule", {"rule_name": "$Default"}), 404),
    ):
        operation, arguments = call
        requests.state = control.declare().state
        assert requests.manage(operation, **arguments)[0] == 200
        assert requests.manage(operation, **arguments)[0] == status


def test_rules_of_a_partitioned_topic_do_not_change_in_a_transaction(
    world: World, client: Client, control: Control
) -> None:
    world.topic("news", enable_partitioning=True)
    subscription = world.subscription("news", "s")
    requests = client.requests(f"{subscription.path}/$management")
    requests.state = control.declare().state
    assert requests.manage("remove-rule", rule_name="$Default")[0] == 400
    assert requests.condition == "amqp:not-allowed"  # P-44


def test_a_peek_is_no_part_of_a_transaction(client: Client, control: Control, queue: str) -> None:
    requests = client.requests(f"{queue}/$management")
    requests.state = control.declare().state
    peek = {"from_sequence_number": 0, "message_count": 5}
    assert requests.manage("peek-message", **peek)[0] == 400  # TXN-1
