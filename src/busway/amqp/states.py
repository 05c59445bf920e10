"""The rules of order: what may follow what on a connection, a session, a link and in SASL.

Every rule is a row of a table: state, then move, then the state after it. `move` looks the row up
and nothing else in the package changes a state. What is not in a table is not allowed: from the
peer it is a `ProtocolError` (they broke a rule), from ourselves a `LocalError` (we did).

The names are those of the AMQP standard: connections 2.4.6, sessions 2.5.5, links 2.6.3 to 2.6.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from busway.amqp.errors import ProtocolError


class LocalError(Exception):
    """Our own side asked for something that the standard forbids: a fault in the caller."""


class Move(Enum):
    """A frame that crosses the wire, seen from this side of it."""

    SEND_HEADER = "send header"
    RECEIVE_HEADER = "receive header"
    SEND_OPEN = "send open"
    RECEIVE_OPEN = "receive open"
    SEND_BEGIN = "send begin"
    RECEIVE_BEGIN = "receive begin"
    SEND_ATTACH = "send attach"
    RECEIVE_ATTACH = "receive attach"
    SEND_DETACH = "send detach"
    RECEIVE_DETACH = "receive detach"
    SEND_END = "send end"
    SEND_END_WITH_ERROR = "send end with error"
    RECEIVE_END = "receive end"
    SEND_CLOSE = "send close"
    SEND_CLOSE_WITH_ERROR = "send close with error"
    RECEIVE_CLOSE = "receive close"
    SEND_MECHANISMS = "send sasl-mechanisms"
    RECEIVE_MECHANISMS = "receive sasl-mechanisms"
    SEND_INIT = "send sasl-init"
    RECEIVE_INIT = "receive sasl-init"
    SEND_OUTCOME = "send sasl-outcome"
    RECEIVE_OUTCOME = "receive sasl-outcome"

    @property
    def is_ours(self) -> bool:
        return self.value.startswith("send")


class ConnectionState(Enum):
    """AMQP 2.4.6. The pipe states are those of a side that writes before it has been answered."""

    START = "START"
    HDR_RCVD = "HDR_RCVD"
    HDR_SENT = "HDR_SENT"
    HDR_EXCH = "HDR_EXCH"
    OPEN_PIPE = "OPEN_PIPE"
    OC_PIPE = "OC_PIPE"
    OPEN_RCVD = "OPEN_RCVD"
    OPEN_SENT = "OPEN_SENT"
    CLOSE_PIPE = "CLOSE_PIPE"
    OPENED = "OPENED"
    CLOSE_RCVD = "CLOSE_RCVD"
    CLOSE_SENT = "CLOSE_SENT"
    DISCARDING = "DISCARDING"
    END = "END"


class SessionState(Enum):
    """AMQP 2.5.5."""

    UNMAPPED = "UNMAPPED"
    BEGIN_SENT = "BEGIN_SENT"
    BEGIN_RCVD = "BEGIN_RCVD"
    MAPPED = "MAPPED"
    END_SENT = "END_SENT"
    END_RCVD = "END_RCVD"
    DISCARDING = "DISCARDING"
    ENDED = "ENDED"


class LinkState(Enum):
    """AMQP 2.6.3 to 2.6.6. Links are never suspended or resumed (amqp.md 16): detached is final."""

    UNATTACHED = "UNATTACHED"
    ATTACH_SENT = "ATTACH_SENT"
    ATTACH_RCVD = "ATTACH_RCVD"
    ATTACHED = "ATTACHED"
    DETACH_SENT = "DETACH_SENT"
    DETACH_RCVD = "DETACH_RCVD"
    DETACHED = "DETACHED"


class SaslState(Enum):
    """AMQP 5.3.2, without challenges: no mechanism that is offered has any."""

    START = "START"
    HDR_SENT = "HDR_SENT"
    HDR_RCVD = "HDR_RCVD"
    HDR_EXCH = "HDR_EXCH"
    MECHANISMS = "MECHANISMS"
    INIT = "INIT"
    DONE = "DONE"


CONNECTION: Mapping[ConnectionState, Mapping[Move, ConnectionState]] = {
    ConnectionState.START: {
        Move.SEND_HEADER: ConnectionState.HDR_SENT,
        Move.RECEIVE_HEADER: ConnectionState.HDR_RCVD,
    },
    ConnectionState.HDR_RCVD: {Move.SEND_HEADER: ConnectionState.HDR_EXCH},
    ConnectionState.HDR_SENT: {
        Move.RECEIVE_HEADER: ConnectionState.HDR_EXCH,
        Move.SEND_OPEN: ConnectionState.OPEN_PIPE,
    },
    ConnectionState.HDR_EXCH: {
        Move.SEND_OPEN: ConnectionState.OPEN_SENT,
        Move.RECEIVE_OPEN: ConnectionState.OPEN_RCVD,
    },
    ConnectionState.OPEN_PIPE: {
        Move.RECEIVE_HEADER: ConnectionState.OPEN_SENT,
        Move.SEND_CLOSE: ConnectionState.OC_PIPE,
        Move.SEND_CLOSE_WITH_ERROR: ConnectionState.OC_PIPE,
    },
    ConnectionState.OC_PIPE: {Move.RECEIVE_HEADER: ConnectionState.CLOSE_PIPE},
    ConnectionState.OPEN_RCVD: {Move.SEND_OPEN: ConnectionState.OPENED},
    ConnectionState.OPEN_SENT: {
        Move.RECEIVE_OPEN: ConnectionState.OPENED,
        Move.SEND_CLOSE: ConnectionState.CLOSE_PIPE,
        Move.SEND_CLOSE_WITH_ERROR: ConnectionState.CLOSE_PIPE,
    },
    ConnectionState.CLOSE_PIPE: {
        Move.RECEIVE_OPEN: ConnectionState.CLOSE_SENT,
        # Not in the standard's table, which waits for an open that a peer in trouble never sends.
        Move.RECEIVE_CLOSE: ConnectionState.END,
    },
    ConnectionState.OPENED: {
        Move.SEND_CLOSE: ConnectionState.CLOSE_SENT,
        Move.SEND_CLOSE_WITH_ERROR: ConnectionState.DISCARDING,
        Move.RECEIVE_CLOSE: ConnectionState.CLOSE_RCVD,
    },
    ConnectionState.CLOSE_RCVD: {
        Move.SEND_CLOSE: ConnectionState.END,
        Move.SEND_CLOSE_WITH_ERROR: ConnectionState.END,
    },
    ConnectionState.CLOSE_SENT: {Move.RECEIVE_CLOSE: ConnectionState.END},
    ConnectionState.DISCARDING: {Move.RECEIVE_CLOSE: ConnectionState.END},
    ConnectionState.END: {},
}

SESSION: Mapping[SessionState, Mapping[Move, SessionState]] = {
    SessionState.UNMAPPED: {
        Move.SEND_BEGIN: SessionState.BEGIN_SENT,
        Move.RECEIVE_BEGIN: SessionState.BEGIN_RCVD,
    },
    SessionState.BEGIN_SENT: {
        Move.RECEIVE_BEGIN: SessionState.MAPPED,
        # A client may give up before it was answered; the answer is then discarded.
        Move.SEND_END: SessionState.DISCARDING,
        Move.SEND_END_WITH_ERROR: SessionState.DISCARDING,
    },
    SessionState.BEGIN_RCVD: {Move.SEND_BEGIN: SessionState.MAPPED},
    SessionState.MAPPED: {
        Move.SEND_END: SessionState.END_SENT,
        Move.SEND_END_WITH_ERROR: SessionState.DISCARDING,
        Move.RECEIVE_END: SessionState.END_RCVD,
    },
    SessionState.END_SENT: {Move.RECEIVE_END: SessionState.ENDED},
    SessionState.DISCARDING: {
        Move.RECEIVE_BEGIN: SessionState.DISCARDING,
        Move.RECEIVE_END: SessionState.ENDED,
    },
    SessionState.END_RCVD: {Move.SEND_END: SessionState.ENDED},
    SessionState.ENDED: {},
}

LINK: Mapping[LinkState, Mapping[Move, LinkState]] = {
    LinkState.UNATTACHED: {
        Move.SEND_ATTACH: LinkState.ATTACH_SENT,
        Move.RECEIVE_ATTACH: LinkState.ATTACH_RCVD,
    },
    LinkState.ATTACH_SENT: {
        Move.RECEIVE_ATTACH: LinkState.ATTACHED,
        Move.SEND_DETACH: LinkState.DETACH_SENT,
    },
    LinkState.ATTACH_RCVD: {Move.SEND_ATTACH: LinkState.ATTACHED},
    LinkState.ATTACHED: {
        Move.SEND_DETACH: LinkState.DETACH_SENT,
        Move.RECEIVE_DETACH: LinkState.DETACH_RCVD,
    },
    LinkState.DETACH_SENT: {
        # The answer to an attach crosses the detach of a client that did not wait for it.
        Move.RECEIVE_ATTACH: LinkState.DETACH_SENT,
        Move.RECEIVE_DETACH: LinkState.DETACHED,
    },
    LinkState.DETACH_RCVD: {Move.SEND_DETACH: LinkState.DETACHED},
    LinkState.DETACHED: {},
}

SASL: Mapping[SaslState, Mapping[Move, SaslState]] = {
    SaslState.START: {
        Move.SEND_HEADER: SaslState.HDR_SENT,
        Move.RECEIVE_HEADER: SaslState.HDR_RCVD,
    },
    SaslState.HDR_SENT: {Move.RECEIVE_HEADER: SaslState.HDR_EXCH},
    SaslState.HDR_RCVD: {Move.SEND_HEADER: SaslState.HDR_EXCH},
    SaslState.HDR_EXCH: {
        Move.SEND_MECHANISMS: SaslState.MECHANISMS,
        Move.RECEIVE_MECHANISMS: SaslState.MECHANISMS,
    },
    SaslState.MECHANISMS: {
        Move.SEND_INIT: SaslState.INIT,
        Move.RECEIVE_INIT: SaslState.INIT,
    },
    SaslState.INIT: {
        Move.SEND_OUTCOME: SaslState.DONE,
        Move.RECEIVE_OUTCOME: SaslState.DONE,
    },
    SaslState.DONE: {},
}

State = TypeVar("State", ConnectionState, SessionState, LinkState, SaslState)


def move(table: Mapping[State, Mapping[Move, State]], state: State, step: Move) -> State:
    """The state after `step`; the one place where a state may change."""
    after = table[state].get(step)
    if after is None:
        if step.is_ours:
            raise LocalError(f"cannot {step.value} in state {state.value}")
        raise ProtocolError("amqp:illegal-state", f"cannot {step.value} in state {state.value}")
    return after
