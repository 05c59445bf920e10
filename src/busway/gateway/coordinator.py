"""The endpoint behind a control link: transactions declared and discharged (amqp.md 14).

Whatever ends the link ends its transactions: they are rolled back.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from busway.amqp import codec
from busway.amqp.errors import DECODE_ERROR, NOT_ALLOWED, ProtocolError
from busway.amqp.events import TransferReceived
from busway.amqp.link import Link
from busway.amqp.performatives import (
    Accepted,
    Composite,
    Declare,
    Declared,
    DeliveryState,
    Discharge,
    Error,
    Rejected,
)
from busway.amqp.sections import AMQP_VALUE, walk_sections
from busway.gateway.transactions import OpenTransaction
from busway.model.errors import SERVER_BUSY, TRANSACTION_UNKNOWN, BusError

if TYPE_CHECKING:
    from busway.gateway.connection import GatewayConnection

CREDIT = 100
OPEN_MAX = 1_000
"""Transactions of one connection; each is memory until it is discharged."""
TRANSACTION_ID_BYTES = 16
"""Drawn at random: unique for all time, so that none is carried out twice (D-28)."""


class CoordinatorEndpoint:
    """One control link."""

    __slots__ = ("_own", "closed", "connection", "link")

    def __init__(self, connection: GatewayConnection, link: Link) -> None:
        self.connection = connection
        self.link = link
        self.closed = False
        self._own: dict[bytes, OpenTransaction] = {}

    def start(self) -> None:
        self.link.set_credit(CREDIT)

    def transfer(self, event: TransferReceived) -> None:
        if self.link.credit <= CREDIT // 2:
            self.link.set_credit(CREDIT)
        delivery_id = None if event.settled else event.delivery_id
        try:
            command = _read(event.payload)
        except ProtocolError as error:
            self._answer(delivery_id, Rejected(Error(error.condition, str(error), None)))
            return
        try:
            if isinstance(command, Discharge):
                self._discharge(command, delivery_id)
            else:
                self._answer(delivery_id, Declared(self._declare()))
        except BusError as error:
            self._refuse(delivery_id, error)

    def too_large(self, delivery_id: int, settled: bool) -> None:
        if not settled:
            fault = Error(NOT_ALLOWED, "The request is too large.", None)
            self._answer(delivery_id, Rejected(fault))

    def _declare(self) -> bytes:
        connection = self.connection
        if len(connection.transactions) >= OPEN_MAX:
            raise BusError(SERVER_BUSY)
        transaction_id = connection.gateway.host.random_bytes(TRANSACTION_ID_BYTES)
        transaction = OpenTransaction(connection.gateway, transaction_id, self.link.session)
        self._own[transaction_id] = connection.transactions[transaction_id] = transaction
        return transaction_id

    def _discharge(self, command: Discharge, delivery_id: int | None) -> None:
        transaction = self._own.pop(command.txn_id, None)
        if transaction is None:
            raise BusError(TRANSACTION_UNKNOWN)
        del self.connection.transactions[command.txn_id]
        if command.fail:
            transaction.roll_back()
            self._answer(delivery_id, Accepted())
        else:
            transaction.commit(partial(self._committed, delivery_id))

    def _committed(self, delivery_id: int | None, error: BusError | None) -> None:
        if error is None:
            self._answer(delivery_id, Accepted())
        else:
            self._refuse(delivery_id, error)

    def _refuse(self, delivery_id: int | None, error: BusError) -> None:
        self._answer(delivery_id, Rejected(self.connection.gateway.wire_error(error)))

    def _answer(self, delivery_id: int | None, state: DeliveryState) -> None:
        if delivery_id is not None and not self.closed:
            self.link.settle([delivery_id], state)

    def close(self) -> None:
        self.closed = True
        for transaction_id, transaction in self._own.items():
            transaction.roll_back()
            self.connection.transactions.pop(transaction_id, None)
        self._own.clear()


def _read(payload: bytes) -> Composite:
    for code, _, value, stop in walk_sections(payload):
        if code == AMQP_VALUE:
            command, _ = codec.decode_composite(payload[value:stop])
            if isinstance(command, Declare | Discharge):
                return command
    raise ProtocolError(DECODE_ERROR, "A coordinator takes declare and discharge.")
