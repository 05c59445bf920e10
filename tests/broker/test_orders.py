"""D-28: rule changes of a transaction are in its commit, and after any crash in the catalog."""

from __future__ import annotations

import pytest

from busway.broker.transactions import Transaction
from busway.cluster.rule_orders import RuleOrder, encode_orders
from busway.model.entities import Rule, SqlFilter, Subscription, Topic
from busway.model.errors import SERVER_BUSY, BusError
from busway.store.faults import CommitOutcome
from tests.broker.several_entities import SeveralEntities, key_of, message, texts
from tests.broker.single_queue import ACCEPTED, COMPLETE, Delivered

ROLLBACK = "TransactionRollback"
NONE = Rule(name="none", filter=SqlFilter("1 = 0"))


@pytest.fixture
def topic(house: SeveralEntities) -> Topic:
    return house.topic()


@pytest.fixture
def audit(house: SeveralEntities, topic: Topic) -> Subscription:
    return house.subscription(topic, "audit")


def work(topic: Topic, audit: Subscription, *sends: str, id_: bytes = b"1") -> Transaction:
    """One that sends, and lets nothing through to the subscription from then on."""
    orders = [
        RuleOrder(audit.incarnation, "none", NONE),
        RuleOrder(audit.incarnation, "$default", None),
    ]
    transaction = Transaction(id_, orders=encode_orders(orders))
    if sends:
        transaction.sends.append((key_of(topic), [message(each) for each in sends]))
    return transaction


def names(house: SeveralEntities, audit: Subscription) -> list[str]:
    return [rule.name for rule in house.world.catalog.rules(audit)]


def remembered(house: SeveralEntities, topic: Topic) -> set[bytes]:
    """What the catalog keeps of transactions, and what the store still wants done."""
    store = house.store_of(topic)
    marks = store.medium._transactions.values()
    wanted = {mark.transaction_id for mark in marks if mark.orders is not None}
    return wanted | house.world.catalog._file.carried_out(store.store_id)


class UnwillingCatalog:
    """The house's catalog, which cannot write for a while."""

    def __init__(self, house: SeveralEntities, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.can_write = False
        self._real = house.world.catalog.carry_out
        monkeypatch.setattr(house.world.catalog, "carry_out", self._carry_out)

    def _carry_out(self, store_id: str, id_: bytes, orders: bytes, now_ms: int = 0) -> None:
        self.asked += 1
        if not self.can_write:
            raise BusError(SERVER_BUSY, refused=True)
        self._real(store_id, id_, orders, now_ms)


def test_rules_are_changed_before_the_answer_and_nothing_is_left_of_it(
    house: SeveralEntities, topic: Topic, audit: Subscription
) -> None:
    """RUL-6: its own messages went by the rules as they were."""
    command = house.start_transact(topic, work(topic, audit, "sent with it"))
    assert names(house, audit) == ["$Default"]
    house.world.run_until(lambda: command.outcome is not None)
    assert command.outcome == ACCEPTED
    assert names(house, audit) == ["none"]
    house.send(topic, "sent after it")
    assert texts(house.receive(audit)) == ["sent with it"]
    assert remembered(house, topic) == set()


def test_a_transaction_of_rules_alone_is_one_too(
    house: SeveralEntities, topic: Topic, audit: Subscription
) -> None:
    assert house.transact(topic, work(topic, audit)) == ACCEPTED
    assert names(house, audit) == ["none"]
    house.crash(topic)
    assert house.transact(topic, work(topic, audit)) == ACCEPTED, "repeated, so answered from it"


@pytest.mark.parametrize("finish_commit", [True, False])
def test_after_a_crash_there_are_both_or_neither(
    house: SeveralEntities, topic: Topic, audit: Subscription, finish_commit: bool
) -> None:
    """The process dies while the commit is on its way, so nobody has carried anything out."""
    house.send(topic, "before")
    house.start_transact(topic, work(topic, audit, "sent with it"))
    house.run(0)
    house.crash(topic, finish_commit=finish_commit)
    arrived = texts(house.receive(audit))
    if finish_commit:
        assert (names(house, audit), arrived) == (["none"], ["before", "sent with it"])
    else:
        assert (names(house, audit), arrived) == (["$Default"], ["before"])
    house.run(1_000)
    assert remembered(house, topic) == set()


def test_a_crash_between_the_commit_and_the_catalog_loses_nothing(
    house: SeveralEntities, topic: Topic, audit: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = UnwillingCatalog(house, monkeypatch)
    command = house.start_transact(topic, work(topic, audit, "sent with it"))
    house.run()
    assert house.counters(audit).active == 1, "committed"
    assert (command.outcome, names(house, audit)) == (None, ["$Default"])
    catalog.can_write = True
    house.crash(topic)
    assert names(house, audit) == ["none"]
    house.send(topic, "after the crash")
    assert texts(house.receive(audit)) == ["sent with it"]
    assert remembered(house, topic) == set()


def test_a_crash_before_the_store_forgets_it_does_not_do_it_again(
    house: SeveralEntities, topic: Topic, audit: Subscription
) -> None:
    """Somebody has removed the rule since: it does not come back."""
    command = house.start_transact(topic, work(topic, audit))
    house.world.run_until(lambda: command.outcome is not None)
    house.world.catalog.remove_rule(audit, "none")
    assert remembered(house, topic) == {b"1"}
    house.crash(topic)
    assert names(house, audit) == []
    house.run(1_000)
    assert remembered(house, topic) == set()


def test_a_catalog_that_cannot_write_is_asked_until_it_can(
    house: SeveralEntities, topic: Topic, audit: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = UnwillingCatalog(house, monkeypatch)
    command = house.start_transact(topic, work(topic, audit, "sent with it"))
    house.run(3_000)
    repeated = house.start_transact(topic, work(topic, audit, "sent with it"))
    house.run(3_000)
    assert catalog.asked > 5
    assert (command.outcome, repeated.outcome) == (None, None)
    catalog.can_write = True
    house.run(3_000)
    assert (command.outcome, repeated.outcome) == (ACCEPTED, ACCEPTED)
    assert names(house, audit) == ["none"]
    assert texts(house.receive(audit)) == ["sent with it"]


@pytest.mark.parametrize(
    ("outcome", "answer", "expected"),
    [
        (CommitOutcome.REFUSED, "ServerBusy", ["$Default"]),
        (CommitOutcome.UNKNOWN_NOT_DONE, "ServerBusy", ["$Default"]),
        (CommitOutcome.UNKNOWN_DONE, ACCEPTED, ["none"]),
    ],
)
def test_rules_follow_the_outcome_of_the_commit(
    house: SeveralEntities,
    topic: Topic,
    audit: Subscription,
    outcome: CommitOutcome,
    answer: str,
    expected: list[str],
) -> None:
    house.send(topic, "before")
    house.store_of(topic).next_commits_end(outcome)
    command = house.start_transact(topic, work(topic, audit, "sent with it"))
    house.run(2_000)
    assert command.outcome == answer
    assert names(house, audit) == expected
    assert remembered(house, topic) == set()


@pytest.mark.parametrize("outcome", list(CommitOutcome))
def test_a_store_that_fails_to_forget_it_is_asked_again(
    house: SeveralEntities, topic: Topic, audit: Subscription, outcome: CommitOutcome
) -> None:
    command = house.start_transact(topic, work(topic, audit))
    house.world.run_until(lambda: command.outcome is not None)
    house.store_of(topic).next_commits_end(outcome)
    house.run(3_000)
    assert remembered(house, topic) == set()
    assert names(house, audit) == ["none"]


def test_a_transaction_that_is_rolled_back_changes_none(
    house: SeveralEntities, topic: Topic, audit: Subscription
) -> None:
    house.send(topic, "x")
    held: Delivered = house.receive_one(audit)
    house.settle(audit, held)
    transaction = work(topic, audit)
    transaction.settlements.append((key_of(audit), held.token, COMPLETE))
    assert house.transact(topic, transaction) == ROLLBACK
    house.crash(topic)
    assert names(house, audit) == ["$Default"]


def test_what_cannot_be_done_any_more_is_left_out(
    house: SeveralEntities, topic: Topic, audit: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages are there, so a transaction cannot be taken back for a rule."""
    catalog = UnwillingCatalog(house, monkeypatch)
    house.start_transact(topic, work(topic, audit))
    house.run()
    house.world.catalog.remove_rule(audit, "$Default")
    catalog.can_write = True
    house.run(1_000)
    assert names(house, audit) == ["none"]


def test_a_subscription_that_was_deleted_meanwhile_gets_none(
    house: SeveralEntities, topic: Topic, audit: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = UnwillingCatalog(house, monkeypatch)
    house.start_transact(topic, work(topic, audit))
    house.run()
    house.world.catalog.delete_subscription(topic.path, audit.name)
    again = house.subscription(topic, "audit")
    catalog.can_write = True
    house.crash(topic)
    assert names(house, again) == ["$Default"]
    assert remembered(house, topic) == set()
