"""Fan-outs that are computed in slices, with turns for everybody else between them (RUL-2, D-30).

What a message becomes in the subscriptions of a topic follows from their rules: copies by the
thousand for one batch. They are made ahead of the commit, `SLICE_COPIES` or one message at a time.
When all are there, the whole send is staged in one piece and is one commit, so nobody sees a part
of it. What happens meanwhile has one meaning each:

* a send to the same partition waits behind it: a sender's messages keep their order (MSG-7);
* a rule that changes counts for those messages of a batch that were not computed yet (RUL-6);
* a subscription that is deleted gets nothing; one that is made gets what is computed from then on;
* a topic that is deleted, or a store that is lost, refuses the send as a whole.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from busway.broker.partition import Partition
from busway.broker.seams import Host
from busway.broker.staging import STAGE_RECORDS_MAX, Change, changed_copy
from busway.model.entities import Entity, Subscription, Topic
from busway.model.errors import COPIES_EXCEEDED, SERVER_BUSY, BusError
from busway.model.limits import BATCH_MAX_COPIES
from busway.model.message import Message, MessageState
from busway.model.session_ids import session_key

if TYPE_CHECKING:
    from busway.filters.actions import Rewritten
    from busway.filters.rules import TopicRules

SLICE_COPIES = 256
"""About 2 ms. One message is never cut, so a slice may have as many as there are subscriptions."""
WAITING_RECORDS_MAX = STAGE_RECORDS_MAX
"""What is computed is not staged while more wait for their commit: they are in memory, and whoever
sends something small would have to wait for all of them."""


class Copied(NamedTuple):
    """A copy for a subscription, without its number."""

    message: Message
    subscription: int
    shares_body: bool
    error: tuple[str, str] | None


class FanOutOwner(Protocol):
    slice_copies: int

    def now_ms(self) -> int: ...

    def exists(self, incarnation: int) -> bool: ...

    def entity(self, incarnation: int) -> Entity: ...

    def topic_rules(self, incarnation: int) -> TopicRules: ...

    def entity_or_none(self, incarnation: int) -> Entity | None: ...


class Commits(Protocol):
    """The way of what is staged to the store."""

    @property
    def waiting_records(self) -> int:
        """Staged, and not committed."""

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call once, when the next commit is done or has failed."""


class _Waiting:
    """A command in the line of a partition."""

    __slots__ = ("again", "command", "copies", "done", "error", "messages", "size")

    def __init__(
        self, command: object, messages: Sequence[Message], again: Callable[[], None]
    ) -> None:
        self.command = command
        self.messages = messages
        self.again = again
        self.size = sum(message.size for message in messages)
        self.done = 0
        """How many of its messages are computed."""
        self.copies = 0
        self.error: BusError | None = None


class FanOuts:
    """The lines of a broker: of each partition whose topic computes a large fan-out."""

    def __init__(self, owner: FanOutOwner, host: Host, commits: Commits) -> None:
        self._owner = owner
        self._commits = commits
        self._host = host
        self._lines: dict[Partition, deque[_Waiting]] = {}
        """The first command of the first line is computed until it is done, so that the copies of
        one send are in memory and not those of many; then that line goes to the end."""
        self._trying: _Waiting | None = None
        self._round_is_due = False
        self.waiting_bytes = 0
        """Of all messages in the lines."""

    # What commands ask.

    def waits(
        self,
        partition: Partition,
        command: object,
        messages: Sequence[Message],
        again: Callable[[], None],
    ) -> bool:
        """Whether copies are computed first; then `again` is called, in the order of the commands.
        `command` is what stays the same when it comes again. Raises if there are too many."""
        trying = self._trying
        if trying is not None and trying.command is command:
            if trying.error is not None:
                raise trying.error
            return False
        topic = partition.entity
        if not isinstance(topic, Topic) or not messages or _is_ahead(partition, messages[-1]):
            return False
        line = self._lines.get(partition)
        if line is None:
            subscriptions = self._owner.topic_rules(topic.incarnation).subscription_count
            if len(messages) * subscriptions <= self._owner.slice_copies:
                return False
            line = self._lines[partition] = deque()
        waiting = _Waiting(command, messages, again)
        line.append(waiting)
        self.waiting_bytes += waiting.size
        self._next_round()
        return True

    def give_up(self) -> None:
        """The store is not well: whoever waits tries again, and learns from the broker why."""
        lines, self._lines = self._lines, {}
        self.waiting_bytes = 0
        for line in lines.values():
            for waiting in line:
                waiting.error = BusError(SERVER_BUSY, refused=True)
                self._try(waiting)

    def copies_of(self, partition: Partition, topic: Topic, message: Message) -> list[Copied]:
        """What was computed for this partition, else what the rules say now; the message has its
        number."""
        ahead, message.copies = message.copies, None
        if ahead is None or ahead[0] is not partition:
            return self._compute(topic, message)
        copies: list[Copied] = ahead[1]
        return [copy for copy in copies if self._owner.exists(copy.subscription)]

    def waits_for_commits(self, again: Callable[[], None]) -> bool:
        """Whether enough waits for its commit already; then `again` is called after one."""
        if self._commits.waiting_records <= WAITING_RECORDS_MAX:
            return False
        self._commits.after_commit(again)
        return True

    def copies_of_one(self, incarnation: int) -> int:
        """How many copies one message may become there: 1, unless it is a topic."""
        if not isinstance(self._owner.entity_or_none(incarnation), Topic):
            return 1
        return self._owner.topic_rules(incarnation).subscription_count

    def messages_per_slice(self, entity: Entity) -> int:
        """How many messages may become copies in one piece; of a queue any number."""
        if not isinstance(entity, Topic):
            return sys.maxsize
        subscriptions = self._owner.topic_rules(entity.incarnation).subscription_count
        return max(1, self._owner.slice_copies // max(1, subscriptions))

    def messages_per_commit(self, entity: Entity) -> int:
        """How many messages can be sent again as one."""
        if not isinstance(entity, Topic):
            return sys.maxsize
        subscriptions = self._owner.topic_rules(entity.incarnation).subscription_count
        return max(1, BATCH_MAX_COPIES // max(1, subscriptions))

    # Slices.

    def _next_round(self) -> None:
        if not self._round_is_due:
            self._round_is_due = True
            self._host.next_round(self._slice)

    def _slice(self) -> None:
        self._round_is_due = False
        if not self._lines:
            return
        partition = next(iter(self._lines))
        line = self._lines[partition]
        left = self._owner.slice_copies
        while line and left > 0:
            first = line[0]
            left -= self._advance(partition, first, left)
            if first.error is None and first.done < len(first.messages):
                break
            if self.waits_for_commits(self._slice):
                self._round_is_due = True
                return
            line.popleft()
            self.waiting_bytes -= first.size
            left -= 1
            self._try(first)
            if self._lines.get(partition) is not line:
                break  # given up meanwhile
        else:
            if self._lines.pop(partition, None) is line and line:
                self._lines[partition] = line
        if self._lines:
            self._next_round()

    def _advance(self, partition: Partition, waiting: _Waiting, copies_max: int) -> int:
        """Compute about so many copies of it; how many they were."""
        made, messages = 0, waiting.messages
        try:
            topic = partition.entity
            assert isinstance(topic, Topic)
            while waiting.done < len(messages) and made < copies_max:
                message = messages[waiting.done]
                waiting.done += 1
                if _is_ahead(partition, message):
                    continue
                now_ms = self._owner.now_ms()
                if message.state is MessageState.SCHEDULED:
                    if message.expires_ms is not None and message.expires_ms > now_ms:
                        # Routed when its time has come, also if that is before it is staged.
                        message.copies = (partition, [])
                        made += 1
                        continue
                    message.state = MessageState.ACTIVE
                if message.session_id is not None:
                    message.session_id = session_key(topic, message.session_id)
                message.number = partition.reserve_numbers(1)[0]  # rules may ask for it
                message.enqueued_ms = now_ms
                copies = self._compute(topic, message)
                message.copies = (partition, copies)
                made += len(copies) + 1
                waiting.copies += len(copies)
                if waiting.copies > BATCH_MAX_COPIES and len(messages) > 1:
                    waiting.error = BusError(
                        COPIES_EXCEEDED, count=len(messages), limit=BATCH_MAX_COPIES, uri=topic.path
                    )
                    for each in messages:
                        each.copies = None
                    break
        except BusError as error:  # the topic is gone
            waiting.error = error
        return made

    def _try(self, waiting: _Waiting) -> None:
        before, self._trying = self._trying, waiting
        try:
            waiting.again()
        finally:
            self._trying = before

    def _compute(self, topic: Topic, message: Message) -> list[Copied]:
        ttl_ms = smaller(message.ttl_ms, topic.default_ttl_ms)  # TTL-2
        found = []
        for copy in self._owner.topic_rules(topic.incarnation).route(message):
            subscription = self._owner.entity(copy.subscription)
            assert isinstance(subscription, Subscription)
            if copy.error is not None and not subscription.dead_lettering_on_filter_errors:
                continue
            one = _copy_for(subscription, message, copy.rewritten, ttl_ms)
            found.append(Copied(one, copy.subscription, copy.rewritten is None, copy.error))
        return found


def _is_ahead(partition: Partition, message: Message) -> bool:
    return message.copies is not None and message.copies[0] is partition


def _copy_for(
    subscription: Subscription, message: Message, rewritten: Rewritten | None, ttl_ms: int | None
) -> Message:
    """What one subscription gets: the message as it was sent, or as a rule's action left it."""
    change = Change(MessageState.ACTIVE, 0, None, message.changes)
    one = changed_copy(message, change)
    one.ttl_ms = ttl_ms
    one.body_id = None
    if rewritten is not None:
        one.bare = rewritten.bare
        one.size = rewritten.size
        one.changes = None  # they are in it already
        one.session_id = rewritten.session_id
        if one.session_id is not None:
            one.session_id = session_key(subscription, one.session_id)
        one.ttl_ms = smaller(rewritten.ttl_ms, ttl_ms)
    return one


def smaller(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
