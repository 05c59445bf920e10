"""What all connections to a namespace share: catalog, owners of partitions, fan-ins, budget, time.

A turn is what one callback of the host sets off. Whatever endpoints collect during it (answers,
pairs of credit and messages) is done once at its end, for all of them in one `soon` (D-10).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from busway.amqp.partial import PartialRoom
from busway.amqp.performatives import Error
from busway.amqp.settings import StrangerLimits
from busway.broker.seams import Host, Timer
from busway.cluster.catalog import Catalog, Change
from busway.gateway.auth import Access, OwnHost
from busway.gateway.batch_reading import SLICE_MESSAGES
from busway.gateway.bearer.errors import TOKEN_REFUSED
from busway.gateway.budget import Budget
from busway.gateway.cbs import CbsService
from busway.gateway.connection import GatewayConnection, Peer
from busway.gateway.fanin import FanIn
from busway.gateway.idle_entities import IdleEntities
from busway.gateway.management import ManagementService
from busway.gateway.partition_turns import PartitionTurns
from busway.gateway.receiver_counts import ReceiverCounts
from busway.gateway.requests import Request
from busway.gateway.router import Owner, Router
from busway.gateway.sender import SenderEndpoint
from busway.gateway.session_receiver import SessionWaits
from busway.gateway.traced import Endpoints
from busway.gateway.transactions import OpenTransaction
from busway.gateway.verified_tokens import VerifiedTokens
from busway.gateway.visitors import Visitors
from busway.model.durations import format_timespan
from busway.model.entities import Entity, Subscription
from busway.model.errors import (
    CONNECTION_QUOTA_EXCEEDED,
    ENTITY_CHANGED,
    ENTITY_DISABLED,
    NOT_FOUND,
    STRANGERS_EXCEEDED,
    TIMEOUT,
    BusError,
    with_tracking,
)
from busway.model.limits import CONNECTIONS_PER_NAMESPACE_MAX, TIERS, TOKEN_WAIT_MAX_MS
from busway.model.names import Address, is_same_host
from busway.model.strangers import StrangerShare
from busway.store.base import SubQueueKind

if TYPE_CHECKING:
    from busway.gateway.bearer.verifier import BearerTokens

log = logging.getLogger("busway.gateway")

NO_ISSUER = (
    "it is a bearer token, and no issuer is trusted here: name one in [[issuers]] of the "
    "configuration file, or start the broker with --dev-tokens"
)

SWEEP_MS = 250
"""How often deadlines are looked at, while anything waits for one: never a timer per message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    node: str = "G0"
    """Names this gateway in the texts of errors, as the service's `SystemTracker` does."""
    send_timeout_ms: int = 60_000
    """P-25."""
    uncommitted_bytes_max: int = 64 * 1024 * 1024
    output_high_bytes: int = 512 * 1024
    """A connection that has so much to write gets no more deliveries until it is written."""
    slice_messages: int = SLICE_MESSAGES
    """Messages of a batch that are read in one piece."""
    requests_open_max: int = 100
    """Management requests of one connection that wait for an answer of a store; as many as the
    link's credit. Each may bring a reply of 256 KiB."""
    reply_bytes_max: int = 4 * 1024 * 1024
    """Replies of one connection that wait for its credit or its session windows."""
    stranger: StrangerLimits = field(default_factory=StrangerLimits)
    """What a connection may do before its first valid token."""
    token_wait_ms: int = TOKEN_WAIT_MAX_MS
    """Until it is shown."""
    strangers_max: int = 500
    """Connections without a valid token, beside `connections_max` with one."""
    partial_bytes_max: int = 128 * 1024 * 1024
    """Unfinished deliveries of all connections."""
    connections_max: int = CONNECTIONS_PER_NAMESPACE_MAX
    """LIM-9."""


def settings_for(share: StrangerShare) -> GatewaySettings:
    """The defaults, with what strangers may have."""
    return GatewaySettings(
        stranger=StrangerLimits(share.bytes, share.frames, share.links),
        token_wait_ms=share.token_wait_ms,
        strangers_max=share.connections,
    )


class Due(Protocol):
    """Something to do once, at the end of this turn."""

    turn_is_due: bool

    def turn(self) -> None: ...


class Gateway:
    """One per node and namespace (`namespaces.py`). `connect` makes its side of a client's
    connection."""

    def __init__(
        self,
        host: Host,
        catalog: Catalog,
        owners: Mapping[str, Owner],
        settings: GatewaySettings | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.host = host
        self.catalog = catalog
        self.access_rules = catalog
        self.answers_to: Callable[[str, str], bool] = is_same_host
        """Whether a client that has called this namespace by one host name may show a token for
        another; `Namespaces` knows of more names."""
        self.tokens = VerifiedTokens(catalog)
        """For those who show one with every request."""
        self.bearer: BearerTokens | None = None
        """For those who show a bearer token; None: no issuer is trusted."""
        self.settings = settings or GatewaySettings()
        self.router = Router(owners)
        self.partition_turns = PartitionTurns(host.random_bytes)
        self.budget = budget or Budget(self.settings.uncommitted_bytes_max)
        """Of the whole node (D-8)."""
        self.endpoints = Endpoints()
        """What links are made of; others where tracing is on."""
        self.batch_max_messages = TIERS[catalog.namespace.tier].batch_max_messages
        """In one batch (LIM-2)."""
        self.cbs = CbsService(self)
        self.management = ManagementService(self)
        self.sessions = SessionWaits(self)
        self.idle = IdleEntities(self)
        self.visitors = Visitors(self)
        self.receivers = ReceiverCounts()
        self.connections: dict[GatewayConnection, None] = {}
        """Those that were opened to this namespace."""
        self._strangers: dict[GatewayConnection, None] = {}
        """Those of them without a valid token so far, the oldest first."""
        self.partial_room = PartialRoom(self.settings.partial_bytes_max)
        self.callers: dict[object, None] = {}
        """Connections by HTTP whose last request was for this namespace."""
        self._fan_ins: dict[tuple[int, SubQueueKind], FanIn] = {}
        self._due: list[Due] = []
        self._sending: dict[SenderEndpoint, None] = {}
        self._requests: list[Request] = []
        self._transactions: dict[OpenTransaction, None] = {}
        self._sweep_timer: Timer | None = None
        catalog.listen(self._entity_changed)
        self.idle.start()

    # --- Connections -----------------------------------------------------------------------------

    def connect(
        self, peer: Peer, on_output: Callable[[], None], *, encrypted: bool = False
    ) -> GatewayConnection:
        """A new connection; `on_output` is called when it has something to write."""
        return GatewayConnection(self, peer, on_output, encrypted=encrypted)

    def opened(self, connection: GatewayConnection) -> None:
        """Raises if there are too many (LIM-9). Strangers have places of their own: where those are
        taken, the one that has had most time to show a token goes."""
        self._check_quota()
        self.connections[connection] = None
        if connection.is_stranger:
            self._strangers[connection] = None
            if len(self._strangers) > self.settings.strangers_max:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                oldest.close_for_strangers(BusError(STRANGERS_EXCEEDED))

    def proved(self, connection: GatewayConnection) -> None:
        """A stranger has shown a valid token; raises if there is no place (LIM-9)."""
        if connection in self._strangers:
            self._check_quota()
            del self._strangers[connection]

    def _check_quota(self) -> None:
        limit = self.settings.connections_max
        if len(self.connections) - len(self._strangers) >= limit:
            namespace = self.catalog.namespace.name
            raise BusError(CONNECTION_QUOTA_EXCEEDED, namespace=namespace, limit=limit)

    def disconnected(self, connection: GatewayConnection) -> None:
        self.connections.pop(connection, None)
        self._strangers.pop(connection, None)

    def over_budget(self) -> bool:
        """Whether sockets should not be read for now (D-8)."""
        return self.budget.exceeded

    # --- Entities --------------------------------------------------------------------------------

    def find(self, address: Address) -> Entity | None:
        """The queue, topic or subscription that an address names or lies in."""
        return self.catalog.find_entity(address)

    def exists(self, address: Address) -> bool:
        return self.find(address) is not None

    def fan_in(self, entity: Entity, kind: SubQueueKind) -> FanIn:
        """Of the entity's sub-queue, for all connections of this gateway."""
        found = self._fan_ins.get((entity.incarnation, kind))
        if found is None:
            order = self.partition_turns.order(entity, kind)
            found = FanIn(entity, kind, self.router, self, order)
            self._fan_ins[entity.incarnation, kind] = found
        return found

    def is_left(self, fan_in: FanIn) -> None:
        key = (fan_in.incarnation, fan_in.kind)
        if self._fan_ins.get(key) is fan_in:
            del self._fan_ins[key]
            self.partition_turns.keep(fan_in.incarnation, fan_in.kind, fan_in.order)

    def message_bytes_max(self, entity: Entity) -> int:
        """The largest message that it may hold; of a subscription, what its topic takes."""
        holder = entity
        if isinstance(holder, Subscription):
            holder = self.catalog.get(holder.topic_incarnation) or holder
        if isinstance(holder, Subscription):
            return 0  # its topic is being deleted, and gives nothing any more
        return holder.max_message_size_bytes

    def has_receivers(self, entity: Entity) -> bool:
        """Whether somebody has a receiver link there, or waits for one."""
        incarnation = entity.incarnation
        return (
            any(key[0] == incarnation for key in self._fan_ins)
            or self.sessions.is_awaited(incarnation)
            or any(connection.holds_session(incarnation) for connection in self.connections)
        )

    def _entity_changed(self, change: Change) -> None:
        """STA-2, STA-5: links to what was deleted or changed are detached; clients attach again."""
        before, after = change.before, change.after
        if after is not None:
            self.idle.expect(after)
        if before is None or change.rule is not None:
            return  # a rule changes what comes later, not who receives it (RUL-6)
        if after is None:
            kind = NOT_FOUND
            self.router.forget(before.incarnation)
            self.partition_turns.forget(before.incarnation)
            self.idle.forget(before.incarnation)
        elif not after.status.can_send and not after.status.can_receive:
            kind = ENTITY_DISABLED
        else:
            kind = ENTITY_CHANGED
        for connection in list(self.connections):
            connection.detach_entity(before.incarnation, BusError(kind, uri=before.path))

    # --- Turns and deadlines ---------------------------------------------------------------------

    def at_turn_end(self, due: Due) -> None:
        """Call `due.turn` once, however often it asks for it."""
        if not due.turn_is_due:
            due.turn_is_due = True
            if not self._due:
                self.host.soon(self._end_turn)
            self._due.append(due)

    def _end_turn(self) -> None:
        due, self._due = self._due, []
        for each in due:
            each.turn_is_due = False
            try:
                each.turn()
            except Exception:
                log.exception("a turn of %s failed", type(each).__name__)
                connection = getattr(each, "connection", None)
                if isinstance(connection, GatewayConnection):
                    connection.fail()

    def await_sends(self, sender: SenderEndpoint) -> None:
        """This link has sends whose deadlines must be watched."""
        self._sending[sender] = None
        self._arm()

    def await_answer(self, request: Request) -> None:
        self._requests.append(request)
        request.awaited()
        self._arm()

    def await_discharge(self, transaction: OpenTransaction) -> None:
        self._transactions[transaction] = None
        self._arm()

    def _arm(self) -> None:
        if self._sweep_timer is None:
            self._sweep_timer = self.host.at(self.host.now_ms() + SWEEP_MS, self._sweep)

    def look_at_deadlines(self) -> None:
        """The clock was moved: transactions may be over."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep()

    def _sweep(self) -> None:
        self._sweep_timer = None
        now_ms = self.host.now_ms()
        for sender in list(self._sending):
            if not sender.sweep(now_ms):
                del self._sending[sender]
        waiting = []
        for request in self._requests:
            if request.answered:
                continue
            if request.deadline_ms <= now_ms:
                timeout = format_timespan(request.timeout_ms)
                self.management.refuse(request, BusError(TIMEOUT, timeout=timeout))
            else:
                waiting.append(request)
        self._requests = waiting
        for transaction in list(self._transactions):
            if transaction.is_over:
                del self._transactions[transaction]
            elif transaction.deadline_ms is not None and transaction.deadline_ms <= now_ms:
                transaction.time_out()
        if self._sending or self._requests or self._transactions:
            self._arm()

    # --- Bearer tokens ---------------------------------------------------------------------------

    def verify_bearer(
        self,
        token: str,
        audience: str,
        own_host: OwnHost,
        *,
        entity: str | None = None,
        may_wait: bool = False,
    ) -> Sequence[Access]:
        """As `BearerTokens.verify`."""
        if self.bearer is None:
            raise BusError(TOKEN_REFUSED, detail=NO_ISSUER)
        clock_ms = self.host.clock_ms()
        return self.bearer.verify(
            token, audience, clock_ms, own_host, entity=entity, may_wait=may_wait
        )

    # --- Errors as clients see them --------------------------------------------------------------

    def describe(self, error: BusError) -> str:
        """The error's text with what support would ask for (amqp.md 15)."""
        tracking_id = UUID(bytes=self.host.random_bytes(16))
        now = datetime.fromtimestamp(self.host.now_ms() / 1000, UTC)
        node = self.settings.node
        return with_tracking(
            error.text, f"{tracking_id}_{node}", node, now.strftime("%Y-%m-%dT%H:%M:%S")
        )

    def wire_error(self, error: BusError) -> Error:
        return Error(error.condition, self.describe(error), None)
