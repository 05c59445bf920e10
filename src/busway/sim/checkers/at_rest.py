"""What must be so when nothing is under way: counters, rows and memory agree (D-13).

This is the one checker that looks inside a broker, at what no client sees: a mark that was left,
a message that is in no window, a byte that was counted twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from busway.broker.broker import Broker
from busway.broker.line import Line
from busway.broker.sessions import SessionTable
from busway.broker.sub_queue import SubQueue
from busway.broker.window import ENTRY_BYTES
from busway.model.message import Message, MessageState
from busway.sim.history import Violation
from busway.sim.world import StoreAndBroker
from busway.store.base import Counters, SubQueueKey, SubQueueKind

NAME = "at rest"

ROWS = 1_000


def rows_of(store: StoreAndBroker, slot: int) -> list[Message]:
    """Every row of a sub-queue, read through the owner's own handle."""
    handle = store.faults.inner
    rows: list[Message] = []
    while page := handle.read_page(slot, rows[-1].number if rows else 0, state=None, rows=ROWS):
        rows += page
    return rows


def check_at_rest(
    store: StoreAndBroker, body_of: Callable[[SubQueueKey, Message], int]
) -> dict[int, SubQueueKey]:
    """Check one broker and its store; returns what is in it, by body."""
    broker = store.broker
    if not broker.available:
        raise Violation(NAME, f"{store.store_id} does not serve: {broker.state}")
    _check_way(broker)
    found: dict[int, SubQueueKey] = {}
    window_bytes = 0
    copies = carried_bodies(store)
    for sub_queue in broker._sub_queues.values():
        rows = rows_of(store, sub_queue.slot)
        if rows and sub_queue.key.kind is SubQueueKind.TRANSFER:
            raise Violation(NAME, f"{sub_queue.key}: {rows} were never handed over")
        _check_counters(sub_queue, rows)
        if sub_queue.sessions is not None:
            _check_sessions(store, sub_queue, sub_queue.sessions, rows)
        _check_memory(sub_queue, {row.number: row for row in rows})
        window_bytes += sum(line.window.bytes for line in sub_queue.lines)
        for row in rows:
            if row.body_id is not None:
                copies[row.body_id] += 1
            body = body_of(sub_queue.key, row)
            if body in found:
                raise Violation(NAME, f"{body} is in {found[body]} and in {sub_queue.key}")
            found[body] = sub_queue.key
    if copies != store.medium._copies:
        raise Violation(NAME, f"shared bodies: {store.medium._copies}, and used are {copies}")
    if broker._budget.bytes_used != window_bytes:
        raise Violation(NAME, f"windows hold {window_bytes} B, not {broker._budget.bytes_used}")
    return found


def _check_way(broker: Broker) -> None:
    way = broker._way
    if way._in_flight is not None or way._queued or not way._open.empty:
        raise Violation(NAME, "something is staged although nothing is under way")
    if way.uncommitted_bytes:
        raise Violation(NAME, f"{way.uncommitted_bytes} B are said to be uncommitted")
    if broker._intake._transfers:
        raise Violation(NAME, "a transfer is being taken although nothing is under way")
    for history in broker._duplicates:
        if not history.is_at_rest:
            raise Violation(NAME, "a message id is still waited for")


def _check_counters(sub_queue: SubQueue, rows: list[Message]) -> None:
    counted = sub_queue.committed
    there = Counters(counted.next_counter)
    for row in rows:
        if row.state is MessageState.ACTIVE:
            there.active += 1
        elif row.state is MessageState.DEFERRED:
            there.deferred += 1
        else:
            there.scheduled += 1
        there.bytes += row.size
    if sub_queue.sessions is not None:
        there.bytes += sum(each.state_bytes for each in sub_queue.sessions._sessions.values())
    if counted != there:
        raise Violation(NAME, f"{sub_queue.key}: counted {counted}, and there are {there}")


def _check_sessions(
    store: StoreAndBroker, sub_queue: SubQueue, sessions: SessionTable, rows: list[Message]
) -> None:
    """Each session's own count and state, in memory and in the store; none is forgotten or kept
    for nothing (D-13, D-24)."""
    active: dict[str, int] = {}
    for row in rows:
        if row.state is MessageState.ACTIVE:
            assert row.session_id is not None
            active[row.session_id] = active.get(row.session_id, 0) + 1
    stored = store.medium._sub_queues
    kept = stored[sub_queue.slot].sessions if sub_queue.slot in stored else {}
    for session_id in {**active, **kept, **sessions._sessions}:
        session, record = sessions._sessions.get(session_id), kept.get(session_id)
        counts = (session.active if session else 0, record.active if record else 0)
        if set(counts) != {active.get(session_id, 0)}:
            raise Violation(
                NAME, f"{session_id}: counted {counts}, there are {active.get(session_id, 0)}"
            )
        if session is None or session.lock is not None:
            continue
        if session.is_empty:
            raise Violation(NAME, f"{session_id} has nothing and is still known")
        if session.active and session not in sessions._free:
            raise Violation(NAME, f"{session_id} is offered to nobody")
    if sessions._removing:
        raise Violation(NAME, f"{sub_queue.key}: {sessions._removing} are being removed")


def _check_memory(sub_queue: SubQueue, rows: dict[int, Message]) -> None:
    key = sub_queue.key
    if sub_queue.tally.staged_bytes:
        raise Violation(NAME, f"{key}: {sub_queue.tally.staged_bytes} B are said to be staged")
    ready = {id(entry) for line in sub_queue.lines for entry in _entries(key, line)}
    active = 0
    for number, message in sub_queue.known.items():
        row = rows.get(number)
        if row is None:
            raise Violation(NAME, f"{key}: {message} is in memory only")
        if message.staged is not None:
            raise Violation(NAME, f"{key}: {message} is still marked")
        if (row.state, row.delivery_count) != (message.state, message.delivery_count):
            raise Violation(NAME, f"{key}: {message} differs from its row {row}")
        active += message.state is MessageState.ACTIVE
        locked = message.lock_token is not None
        if locked and sub_queue.locks.get(message.lock_token or b"") is not message:
            raise Violation(NAME, f"{key}: {message} has a lock that nobody knows")
        if not locked and id(message) not in ready:
            raise Violation(NAME, f"{key}: {message} is ready and would never be delivered")
    in_store = sum(line.in_store for line in sub_queue.lines)
    if sub_queue.committed.active != in_store + active:
        raise Violation(
            NAME,
            f"{key}: {sub_queue.committed.active} active, {in_store} said to be in the store, "
            f"{active} in memory",
        )


def _entries(key: SubQueueKey, line: Line) -> list[Message]:
    """What one line would deliver from memory."""
    if line.paging or line.held_back or line._grants:
        raise Violation(NAME, f"{key}: a page, a message or a grant of {line.session_id} waits")
    window = line.window
    entries = [*window._tail, *(entry[2] for entry in window._early)]
    if sum(entry.size + ENTRY_BYTES for entry in entries) != window.bytes:
        raise Violation(NAME, f"{key}: the window's bytes are wrong")
    return entries


def carried_bodies(store: StoreAndBroker) -> Counter[int]:
    """How many rows of journals have each shared body."""
    carried: Counter[int] = Counter()
    for journal in store.medium._journals.by_slot.values():
        for row in journal.rows.values():
            if row.record.content is not None:
                carried[row.record.content.body_id] += 1
    return carried
