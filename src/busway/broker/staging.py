"""What commands have staged and no commit has applied yet (D-1).

Executing a command only fills a `Stage`. Once its commit is durable, `apply` makes it true in
memory and answers; if the commit failed, `undo` takes the marks off and answers that. Flat lists
and one answer per link: no closure, Future or timer per message (D-10).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from busway.broker.counting import Event
from busway.broker.seams import Grant, Replies
from busway.model.errors import BusError
from busway.model.message import ACTIVE, DEFERRED, Message, MessageState
from busway.store.base import (
    Batch,
    Counters,
    Delete,
    DuplicateMark,
    Move,
    SessionCount,
    SessionState,
    TransactionMark,
    TransferMark,
    Update,
)
from busway.store.journal import JOURNAL_ROW_BYTES, JournalHead, JournalHold, JournalTrim

if TYPE_CHECKING:
    from busway.broker.duplicates import DuplicateHistory
    from busway.broker.journal import Draft, Journal
    from busway.broker.sub_queue import SubQueue

STAGE_RECORDS_MAX = 1_024
STAGE_BYTES_MAX = 2 * 1024 * 1024
"""A batch closes at about this size; one send is never split (D-7)."""

BODY_SHIFT = 20
"""A shared body's id: the number of its commit, then its place in there."""


class Change(NamedTuple):
    """What a message becomes when the commit is done."""

    state: MessageState
    delivery_count: int
    expires_ms: int | None
    changes: bytes | None


class Stage:
    """One batch while it is being filled, and while its commit is on the way."""

    __slots__ = (
        "_counters",
        "_heads",
        "_room",
        "_session_counts",
        "_state_bytes",
        "after",
        "answers",
        "bytes",
        "deletes",
        "duplicates",
        "holds",
        "journal",
        "journal_due",
        "moves",
        "noted",
        "passing",
        "purges",
        "puts",
        "records",
        "reserved",
        "session_states",
        "shared",
        "touched",
        "transactions",
        "transfers",
        "trims",
        "unread",
        "updates",
        "waiting",
    )

    def __init__(self) -> None:
        self.puts: list[tuple[SubQueue, Message]] = []
        self.deletes: list[tuple[SubQueue, Message]] = []
        self.updates: list[tuple[SubQueue, Message, Change]] = []
        self.moves: list[tuple[SubQueue, SubQueue, Message, Message]] = []
        """From where to where, and what it becomes there."""
        self.shared: list[tuple[bytes, list[Message]]] = []
        """Bodies that several of the messages share (D-30)."""
        self.session_states: list[tuple[SubQueue, str, bytes | None, int, str | None]] = []
        self.duplicates: list[tuple[DuplicateHistory, DuplicateMark]] = []
        self.transfers: list[TransferMark] = []
        self.transactions: list[TransactionMark] = []
        self.journal: list[Draft] = []
        """What is told of all this, and of deliveries that no commit waits for (D-31)."""
        self.journal_due = False
        """It has waited long enough for something to ride along with."""
        self.trims: list[tuple[Journal, JournalHead]] = []
        """Journals whose oldest rows go, and by how much their heads then differ."""
        self.holds: list[tuple[Journal, JournalHold]] = []
        self.touched: dict[SubQueue, None] = {}
        """Sub-queues that gave out numbers: remembered even if nothing stays there."""
        self.purges: list[int] = []
        self.reserved: list[tuple[Grant, list[Message]]] = []
        """Receive-and-delete: who gets what once the removal is durable (D-6)."""
        self.answers: dict[Replies, list[int]] = {}
        self.after: list[Callable[[BusError | None], None]] = []
        """For the rare commands that answer with more than a tag."""
        self.waiting: list[Callable[[], None]] = []
        """Commands that need something marked here; run once the outcome is known (D-1)."""
        self.noted: list[tuple[SubQueue, Event]] = []
        """To be counted if the commit is done."""
        self.passing: list[SubQueue] = []
        """Of topics, once for each message that went through to the subscriptions."""
        self.unread: list[tuple[SubQueue, Message]] = []
        """Of the deletes, those that are no receiver's."""
        self.records = 0
        self.bytes = 0
        self._room: list[tuple[SubQueue, int]] = []
        self._counters: dict[SubQueue, Counters] = {}
        self._heads: dict[Journal, JournalHead] = {}
        self._session_counts: dict[tuple[SubQueue, str], int] = {}
        self._state_bytes: dict[tuple[SubQueue, str], int] = {}

    def has_room(self, records: int, size: int) -> bool:
        return self.records == 0 or (
            self.records + records <= STAGE_RECORDS_MAX and self.bytes + size <= STAGE_BYTES_MAX
        )

    @property
    def empty(self) -> bool:
        return not (self.records or self.after or self.answers or self.journal_due)

    # Filling it. Each marks its message, so nothing else touches it before the outcome.

    def put(self, sub_queue: SubQueue, message: Message) -> None:
        message.staged = self
        sub_queue.tally.staged_bytes += message.size
        self.puts.append((sub_queue, message))
        self.records += 1
        self.bytes += message.size

    def delete(self, sub_queue: SubQueue, message: Message) -> None:
        assert message.staged is None
        message.staged = self
        self.deletes.append((sub_queue, message))
        self.records += 1

    def discard(self, sub_queue: SubQueue, message: Message, why: Event) -> None:
        """Delete what nobody has received."""
        self.delete(sub_queue, message)
        self.unread.append((sub_queue, message))
        self.noted.append((sub_queue, why))

    def update(self, sub_queue: SubQueue, message: Message, change: Change) -> None:
        assert message.staged is None
        message.staged = self
        self.updates.append((sub_queue, message, change))
        self.records += 1

    def move(self, sub_queue: SubQueue, target: SubQueue, message: Message, moved: Message) -> None:
        """`moved` is a new object: the old one keeps its mark for ever, so that whatever still
        points at it passes it over."""
        assert message.staged is None
        message.staged = self
        self.moves.append((sub_queue, target, message, moved))
        self.records += 1

    def reserve(self, grant: Grant, messages: list[Message]) -> None:
        """Messages whose removal is staged here go to this grant, once it is durable."""
        grant.reserved += len(messages)
        self.reserved.append((grant, messages))

    def set_session_state(
        self,
        sub_queue: SubQueue,
        session_id: str,
        state: bytes | None,
        now_ms: int,
        name: str | None = None,
    ) -> None:
        """`name` is how the session is spelt by who knows it first (SES-13)."""
        self.session_states.append((sub_queue, session_id, state, now_ms, name))
        self.records += 1
        self.bytes += len(state or b"")

    def hold_room(self, sub_queue: SubQueue, size: int) -> None:
        """What will count against the quota, and is no message (D-17)."""
        sub_queue.tally.staged_bytes += size
        self._room.append((sub_queue, size))

    def mark_transaction(self, mark: TransactionMark) -> None:
        self.transactions.append(mark)
        self.records += 1

    def purge(self, slot: int) -> None:
        self.purges.append(slot)
        self.records += 1

    def answer(self, replies: Replies, tag: int) -> None:
        tags = self.answers.get(replies)
        if tags is None:
            self.answers[replies] = [tag]
        else:
            tags.append(tag)

    # Its commit.

    def batch(self, number: int, time_ms: int) -> Batch:
        """The records for the store. Called when every earlier batch is committed, because the
        counters in it are absolute (D-13)."""
        batch = Batch(
            number=number,
            time_ms=time_ms,
            duplicates=[mark for _, mark in self.duplicates],
            transfers=self.transfers,
            transactions=self.transactions,
            purges=self.purges,
        )
        for index, (bare, copies) in enumerate(self.shared):
            # Unique for ever, because commits are numbered: slots are not, once they are purged.
            body_id = number << BODY_SHIFT | index
            batch.bodies.append((body_id, bare))
            for message in copies:
                message.body_id = body_id
        for sub_queue, message in self.puts:
            self._count(sub_queue, message, message.state, 1, message.size)
            batch.puts.append((sub_queue.slot, message))
        for sub_queue, message in self.deletes:
            self._count(sub_queue, message, message.state, -1, -message.size)
            batch.deletes.append(Delete(sub_queue.slot, message.number))
        for sub_queue, message, change in self.updates:
            if message.state is not change.state:
                self._count(sub_queue, message, message.state, -1, 0)
                self._count(sub_queue, message, change.state, 1, 0)
            batch.updates.append(Update(sub_queue.slot, message.number, *change))
        for sub_queue, target, message, moved in self.moves:
            self._count(sub_queue, message, message.state, -1, -message.size)
            self._count(target, moved, moved.state, 1, moved.size)
            batch.moves.append(Move(sub_queue.slot, message.number, target.slot, moved))
        for sub_queue in self.touched:
            self._counters_of(sub_queue)
        if self.journal or self.trims or self.holds:
            self._write_journals(batch)
        for sub_queue, session_id, state, updated_ms, name in self.session_states:
            assert sub_queue.sessions is not None
            session = (sub_queue, session_id)
            known = sub_queue.sessions.named(session_id, name)
            before_bytes = self._state_bytes.get(session)
            if before_bytes is None:
                before_bytes = known.state_bytes
            self._state_bytes[session] = len(state or b"")
            self._counters_of(sub_queue).bytes += self._state_bytes[session] - before_bytes
            row = SessionState(sub_queue.slot, session_id, state, updated_ms, known.stored_name)
            batch.session_states.append(row)
        for sub_queue, counters in self._counters.items():
            counters.next_counter = sub_queue.next_counter
            batch.counters[sub_queue.slot] = counters
            if not sub_queue.stored:
                batch.sub_queues.append((sub_queue.slot, sub_queue.key))
        for (sub_queue, session_id), active in self._session_counts.items():
            assert sub_queue.sessions is not None
            name = sub_queue.sessions.get(session_id).stored_name
            batch.session_counts.append(SessionCount(sub_queue.slot, session_id, active, name))
        return batch

    def _write_journals(self, batch: Batch) -> None:
        """D-31: offsets from the last committed one on, so that they are dense."""
        for journal, step in self.trims:
            head = self._head_of(journal)
            head.earliest += step.earliest
            head.bytes -= step.bytes
            head.earliest_ms = step.earliest_ms
            batch.trims.append(JournalTrim(journal.main.slot, head.earliest))
        by_journal: dict[Journal, list[Draft]] = {}
        for draft in self.journal:
            drafts = by_journal.get(draft.journal)
            if drafts is None:
                by_journal[draft.journal] = [draft]
            else:
                drafts.append(draft)
        for journal, drafts in by_journal.items():
            if not journal.gone:
                self._write_journal(journal, drafts, batch)
        for journal, hold in self.holds:
            self._head_of(journal)
            batch.holds.append(hold)
        for journal, head in self._heads.items():
            batch.journal_heads[journal.main.slot] = head

    def _write_journal(self, journal: Journal, drafts: list[Draft], batch: Batch) -> None:
        head, slot, records = self._head_of(journal), journal.main.slot, batch.journal
        offset = head.next_offset
        if head.earliest == offset:
            head.earliest_ms = drafts[0].time_ms
        for draft in drafts:
            body_id = None
            if draft.carried is not None:
                body_id = self._carried_body(draft, draft.carried, batch)
                head.bytes += draft.carried.size
            records.append(draft.record(slot, offset, body_id))
            offset += 1
        head.next_offset = offset
        head.bytes += JOURNAL_ROW_BYTES * len(drafts)
        head.last_ms = drafts[-1].time_ms

    def _head_of(self, journal: Journal) -> JournalHead:
        head = self._heads.get(journal)
        if head is None:
            head = self._heads[journal] = journal.head.copy()
            if not journal.main.stored:
                self._counters_of(journal.main)
        return head

    def _carried_body(self, draft: Draft, message: Message, batch: Batch) -> int:
        """The body that an event carries, shared with its message if that can be (D-30)."""
        if message.body_id is not None:
            return message.body_id
        body_id = batch.number << BODY_SHIFT | len(batch.bodies)
        batch.bodies.append((body_id, message.bare))
        if not draft.moved:
            message.body_id = body_id
        return body_id

    def _counters_of(self, sub_queue: SubQueue) -> Counters:
        counters = self._counters.get(sub_queue)
        if counters is None:
            counters = self._counters[sub_queue] = sub_queue.committed.copy()
        return counters

    def _count(
        self, sub_queue: SubQueue, message: Message, state: MessageState, count: int, size: int
    ) -> None:
        counters = self._counters.get(sub_queue)
        if counters is None:
            counters = self._counters_of(sub_queue)
        counters.bytes += size
        if state is ACTIVE:
            counters.active += count
            if sub_queue.sessions is not None:
                self._count_in_session(sub_queue, message, count)
        elif state is DEFERRED:
            counters.deferred += count
        else:
            counters.scheduled += count

    def _count_in_session(self, sub_queue: SubQueue, message: Message, count: int) -> None:
        assert sub_queue.sessions is not None
        assert message.session_id is not None
        session = (sub_queue, message.session_id)
        known = self._session_counts.get(session)
        if known is None:
            known = sub_queue.sessions.of(message).active
        self._session_counts[session] = known + count

    def settle_counters(self, now_ms: int) -> None:
        """The commit is durable: what it counted is true, before the next one counts on it."""
        for sub_queue, counters in self._counters.items():
            sub_queue.tally.bytes += counters.bytes - sub_queue.committed.bytes
            sub_queue.committed = counters
            sub_queue.stored = True
        for journal, head in self._heads.items():
            journal.head = head
        for journal, hold in self.holds:
            if hold.offset is None:
                journal.holds.pop(hold.name, None)
            else:
                journal.holds[hold.name] = hold
        for (sub_queue, session_id), active in self._session_counts.items():
            assert sub_queue.sessions is not None
            sub_queue.sessions.get(session_id).active = active
        for (sub_queue, session_id), state_bytes in self._state_bytes.items():
            assert sub_queue.sessions is not None
            sub_queue.sessions.get(session_id).state_bytes = state_bytes
        self._free_room()
        self.count_movements(now_ms)

    def _free_room(self) -> None:
        for sub_queue, message in self.puts:
            sub_queue.tally.staged_bytes -= message.size
        for sub_queue, size in self._room:
            sub_queue.tally.staged_bytes -= size

    def count_movements(self, now_ms: int) -> None:
        for sub_queue, _ in self.puts:
            sub_queue.movements.sent += 1
        for sub_queue in self.passing:
            sub_queue.movements.sent += 1
        for sub_queue, message in self.deletes:
            sub_queue.movements.received_after(now_ms - message.enqueued_ms)
        for sub_queue, message in self.unread:
            sub_queue.movements.received_after(now_ms - message.enqueued_ms, -1)
        for sub_queue, event in self.noted:
            sub_queue.movements.count(event)

    def apply(self) -> None:
        """The commit is durable: reveal, remove, answer (D-5)."""
        for sub_queue, message in self._arrivals():
            message.staged = None
            sub_queue.arrived(message)
        for sub_queue, message in self.deletes:
            sub_queue.removed(message)
        for sub_queue, message, change in self.updates:
            sub_queue.updated(message, change)
        for sub_queue, _, message, _ in self.moves:
            sub_queue.removed(message)
        for sub_queue, session_id, state, updated_ms, name in self.session_states:
            assert sub_queue.sessions is not None
            sub_queue.sessions.state_set(session_id, state, updated_ms, name)
        for history, mark in self.duplicates:
            history.committed(mark)
        touched = dict.fromkeys(self._counters)
        touched.update((sub_queue, None) for sub_queue, _, _ in self.updates)
        for replies, tags in self.answers.items():
            replies.committed(tags)
        self._hand_out(delivered=True)
        for answer in self.after:
            answer(None)
        for sub_queue in touched:
            sub_queue.wake()
        for command in self.waiting:
            command()

    def _arrivals(self) -> list[tuple[SubQueue, Message]]:
        """In the order of their numbers. A line keeps in memory what comes before the first that
        finds no room, and a transfer queue loses what is handed over too late (D-27)."""
        if not self.moves:
            return self.puts
        moved = [(target, moved) for _, target, _, moved in self.moves]
        return sorted([*self.puts, *moved], key=lambda arrival: arrival[1].number)

    def undo(self, error: BusError) -> None:
        """The commit failed: every mark comes off, and everybody is told (D-1)."""
        touched: dict[SubQueue, None] = {}
        self._free_room()
        for history, mark in self.duplicates:
            history.undone(mark)
        for sub_queue, message in self.deletes:
            sub_queue.restored(message)
            touched[sub_queue] = None
        for sub_queue, message, _ in self.updates:
            sub_queue.restored(message)
            touched[sub_queue] = None
        for sub_queue, _, message, _ in self.moves:
            sub_queue.restored(message)
            touched[sub_queue] = None
        self.tell(error)
        for sub_queue in touched:
            sub_queue.wake()

    def tell(self, error: BusError | None) -> None:
        """Answer everybody without touching the partitions' memory, which is being dropped."""
        if error is not None:
            for draft in self.journal:
                if draft.carried is not None and not draft.moved:
                    draft.carried.body_id = None  # it may be sent elsewhere, and has none there
        for replies, tags in self.answers.items():
            if error is None:
                replies.committed(tags)
            else:
                for tag in tags:
                    replies.failed(tag, error)
        self._hand_out(delivered=error is None)
        for answer in self.after:
            answer(error)
        for command in self.waiting:
            command()

    def _hand_out(self, *, delivered: bool) -> None:
        for grant, messages in self.reserved:
            grant.reserved -= len(messages)
            if delivered:
                grant.receiver.deliver(grant, messages)
            else:
                grant.left = 0
            if grant.left == 0 and grant.reserved == 0:
                grant.receiver.finished(grant)


def changed_copy(message: Message, change: Change, *, number: int | None = None) -> Message:
    """What a message becomes elsewhere: everything that it is, but for the change."""
    return Message(
        bare=message.bare,
        size=message.size,
        header=message.header,
        ttl_ms=message.ttl_ms,
        annotations=message.annotations,
        annotation_items=message.annotation_items,
        session_id=message.session_id,
        number=message.number if number is None else number,
        enqueued_ms=message.enqueued_ms,
        expires_ms=change.expires_ms,
        delivery_count=change.delivery_count,
        state=change.state,
        changes=change.changes,
        enqueued_number=message.enqueued_number,
        body_id=message.body_id,
        hops=message.hops,
        dead_letter_source=message.dead_letter_source,
        destination=message.destination,
    )
