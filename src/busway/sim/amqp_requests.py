"""Requests of simulated AMQP clients on `<entity>/$management`: locks, peeks, what is deferred or
scheduled, sessions.

A pair of links per entity and connection. A request that is not answered when the connection is
lost is answered with None: nobody will ever tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from busway.amqp.events import Detached, Event, TransferReceived
from busway.amqp.link import Link, LinkRole
from busway.amqp.performatives import Properties, Source, Target
from busway.amqp.sections import (
    AMQP_VALUE,
    encode_message,
    read_application_properties,
    read_properties,
)
from busway.amqp.types import Array, UInt
from busway.broker.seams import SettlementKind
from busway.model.entities import Entity
from busway.sim.wire_messages import decode
from busway.store.base import SubQueueKind

if TYPE_CHECKING:
    from busway.sim.amqp_clients import AmqpClient

REPLIES_CREDIT = 10_000

STATUSES = {
    SettlementKind.COMPLETE: "completed",
    SettlementKind.ABANDON: "abandoned",
    SettlementKind.DEFER: "defered",  # sic: what the clients send
    SettlementKind.DEAD_LETTER: "suspended",
    SettlementKind.RELEASE: "released",
}

Done = Callable[[int | None, dict[str, Any]], None]
"""Called with the status, None if it is unknown for ever, and the answer's body."""


class AmqpRequests:
    def __init__(self, client: AmqpClient, entity: Entity, kind: SubQueueKind) -> None:
        self._client = client
        dead = "/$DeadLetterQueue" if kind is SubQueueKind.DEAD_LETTER else ""
        self._node = f"{entity.path}{dead}/$management"
        self._lives = 0
        self._sender: Link | None = None
        self._replies: Link | None = None
        self._asked: dict[UUID, Done] = {}
        self._next = 0

    @property
    def idle(self) -> bool:
        return not self._asked

    def attach(self) -> None:
        session = self._client.session
        if session is None:
            return
        self._lives += 1
        name = f"{self._client.name}-{self._node}-{self._lives}"
        source, target = Source(self._node), Target(self._node)
        self._replies = session.attach(name, LinkRole.RECEIVER, source=source, target=Target(name))
        self._sender = session.attach(name, LinkRole.SENDER, source=Source(name), target=target)
        self._replies.context = self._sender.context = self
        self._name = name

    def lost(self) -> None:
        self._sender = self._replies = None
        asked, self._asked = self._asked, {}
        for done in asked.values():
            done(None, {})

    def ask(self, operation: str, body: dict[str, Any], done: Done) -> bool:
        """Whether it was asked at all."""
        sender, replies = self._sender, self._replies
        if sender is None or replies is None or not sender.is_attached or not replies.is_attached:
            return False
        if sender.credit == 0:
            return False
        if replies.credit == 0:
            replies.set_credit(REPLIES_CREDIT)
        self._next += 1
        message_id = UUID(int=self._next)
        self._asked[message_id] = done
        payload = encode_message(
            properties=Properties(message_id=message_id, reply_to=self._name),
            application_properties={"operation": f"com.microsoft:{operation}"},
            body=body,
        )
        sender.send(payload, self._next.to_bytes(4, "big"))
        return True

    def take(self, event: Event) -> None:
        if isinstance(event, Detached):
            self.lost()
        elif isinstance(event, TransferReceived):
            correlation_id = read_properties(event.payload).correlation_id
            done = self._asked.pop(correlation_id, None)
            if done is not None:
                status = int(read_application_properties(event.payload)["statusCode"])
                done(status, decode(event.payload).get(AMQP_VALUE) or {})

    # The operations.

    def renew(self, token: bytes, done: Done) -> bool:
        return self.ask("renew-lock", {"lock-tokens": _uuids(token)}, done)

    def settle(
        self,
        token: bytes,
        kind: SettlementKind,
        reason: str | None,
        session_id: str | None,
        done: Done,
    ) -> bool:
        body: dict[str, Any] = {"lock-tokens": _uuids(token), "disposition-status": STATUSES[kind]}
        if session_id is not None:
            body["session-id"] = session_id
        if reason is not None:
            body |= {"deadletter-reason": reason, "deadletter-description": "so it is"}
        return self.ask("update-disposition", body, done)

    def fetch(self, number: int, session_id: str | None, *, delete: bool, done: Done) -> bool:
        mode = UInt(0 if delete else 1)
        body = {"sequence-numbers": Array([number], int), "receiver-settle-mode": mode}
        if session_id is not None:
            body["session-id"] = session_id
        return self.ask("receive-by-sequence-number", body, done)

    def peek(self, from_number: int, done: Done) -> bool:
        return self.ask(
            "peek-message", {"from-sequence-number": from_number, "message-count": 10}, done
        )

    def schedule(self, payloads: list[bytes], done: Done) -> bool:
        messages = [{"message-id": str(n), "message": each} for n, each in enumerate(payloads)]
        return self.ask("schedule-message", {"messages": messages}, done)

    def cancel(self, number: int, done: Done) -> bool:
        body = {"sequence-numbers": Array([number], int)}
        return self.ask("cancel-scheduled-message", body, done)

    def renew_session(self, session_id: str, done: Done) -> bool:
        return self.ask("renew-session-lock", {"session-id": session_id}, done)

    def set_state(self, session_id: str, state: bytes | None, done: Done) -> bool:
        body = {"session-id": session_id, "session-state": state}
        return self.ask("set-session-state", body, done)

    def read_state(self, session_id: str, done: Done) -> bool:
        return self.ask("get-session-state", {"session-id": session_id}, done)


def _uuids(token: bytes) -> Array:
    return Array([UUID(bytes_le=token)], UUID)
