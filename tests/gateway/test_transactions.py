"""Transactions as a client sees them (amqp.md 14, TXN, P-33 to P-38, D-28)."""

from __future__ import annotations

from typing import Any

import pytest

from busway.amqp.performatives import (
    Accepted,
    Modified,
    Rejected,
    TransactionalState,
)
from busway.amqp.sections import encode_message
from busway.model.message import partition_of
from busway.store.faults import CommitOutcome
from tests.gateway.test_sessions import ask
from tests.gateway.transacting import Control, Txn, condition, error, other_session
from tests.gateway.world import (
    Client,
    World,
    header,
    message,
    message_annotations,
    uuids,
)

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


def test_a_settlement_is_answered_unsettled_and_settled_by_the_commit(
    client: Client, control: Control, queue: str
) -> None:
    """amqp.md 14: else the client would have nothing left to settle after a rollback."""
    client.sender(queue).send(message("in"))
    receiver = client.receiver(queue, credit=1)
    txn = control.declare()
    txn.settle(receiver, receiver.deliveries, Accepted())  # checks that the answer is unsettled
    assert receiver.settled(receiver.deliveries) == []
    txn.commit()
    assert receiver.settled(receiver.deliveries) == [Accepted()]
    assert receiver.link.session._proposed == {}


@pytest.mark.parametrize("how", ["plainly", "in another transaction", "by its token"])
def test_after_a_rollback_the_delivery_can_be_settled_again(
    world: World, client: Client, control: Control, queue: str, how: str
) -> None:
    """TXN-2: it lives on, under its lock."""
    client.sender(queue).send(message("in"))
    receiver = client.receiver(queue, credit=1)
    for _ in range(2):
        txn = control.declare()
        assert isinstance(txn.settle(receiver, receiver.deliveries, Accepted()), Accepted)
        assert isinstance(txn.discharge(fail=True), Accepted)
    assert receiver.settled(receiver.deliveries) == []
    if how == "plainly":
        assert isinstance(receiver.settle(receiver.deliveries, Accepted()), Accepted)
    elif how == "by its token":
        requests = client.requests(f"{queue}/$management")
        tokens = uuids(receiver.deliveries[0].tag)
        complete = {"disposition_status": "completed", "lock_tokens": tokens}
        assert requests.manage("update-disposition", **complete)[0] == 200
    else:
        txn = control.declare()
        txn.settle(receiver, receiver.deliveries, Accepted())
        txn.commit()
        assert receiver.settled(receiver.deliveries) == [Accepted()]
    world.settle(for_ms=61_000)
    assert client.receiver(queue, "again", credit=1).deliveries == []


def test_a_refused_settlement_is_answered_unsettled_too(
    world: World, client: Client, control: Control, queue: str
) -> None:
    client.sender(queue).send(message("in"))
    receiver = client.receiver(queue, credit=1)
    state = TransactionalState(b"no such transaction!", Accepted())
    refused = receiver.propose(receiver.deliveries, state)
    assert condition(refused) == "amqp:transaction:unknown-id"
    assert isinstance(receiver.settle(receiver.deliveries, Accepted()), Accepted)


def test_a_rollback_because_of_a_lost_lock_settles_nothing(
    world: World, client: Client, control: Control, queue: str
) -> None:
    client.sender(queue).send(message("in"))
    receiver = client.receiver(queue, credit=1)
    txn = control.declare()
    txn.settle(receiver, receiver.deliveries, Accepted())
    world.settle(for_ms=61_000)
    assert condition(txn.discharge()) == "amqp:transaction:rollback"
    assert receiver.settled(receiver.deliveries) == []
    lost = receiver.settle(receiver.deliveries, Accepted())
    assert condition(lost) == "com.microsoft:message-lock-lost"


def test_who_settles_plainly_takes_the_message_from_an_open_transaction(
    client: Client, control: Control, queue: str
) -> None:
    """The first that is committed has it; the transaction is rolled back as a whole."""
    sender = client.sender(queue)
    sender.send(message("in", partition_key="k"))
    receiver = client.receiver(queue, credit=1)
    txn = control.declare()
    txn.settle(receiver, receiver.deliveries, Accepted())
    txn.send(sender, message("out", partition_key="k"))
    assert isinstance(receiver.settle(receiver.deliveries, Accepted()), Accepted)
    txn.is_doomed()
    assert client.receiver(queue, "again", credit=5).deliveries == []


def test_many_settlements_of_one_transaction_are_settled_together(
    client: Client, control: Control
) -> None:
    client.world.queue("many")
    client.sender("many").fill(10)
    receiver = client.receiver("many", credit=10)
    txn = control.declare()
    txn.settle(receiver, receiver.deliveries[:6], Accepted())
    txn.settle(receiver, receiver.deliveries[6:8], Modified())
    txn.settle(receiver, receiver.deliveries[8:], Rejected())
    txn.commit()
    assert receiver.settled(receiver.deliveries[:6]) == [Accepted()] * 6
    # Accepted, whatever was decided: Java fails at a rejection without an error.
    assert receiver.settled(receiver.deliveries[6:10]) == [Accepted()] * 4


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
