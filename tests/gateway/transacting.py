"""A client's end of transactions: its control link, and what it does in one of them."""

from __future__ import annotations

from typing import Any

from busway.amqp.link import LinkRole
from busway.amqp.performatives import (
    Accepted,
    Coordinator,
    Declared,
    DeliveryState,
    Error,
    Rejected,
    TransactionalState,
)
from busway.amqp.sections import encode_message
from busway.amqp.session import Session
from busway.amqp.types import Described, ULong
from tests.gateway.world import Client, Receiver, Sender


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
        state = receiver.propose(deliveries, TransactionalState(self.txn_id, outcome))
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


def other_session(client: Client) -> Session:
    return client.engine.begin()
