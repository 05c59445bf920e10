"""The tables of states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from busway.amqp import states
from busway.amqp.errors import ProtocolError
from busway.amqp.states import ConnectionState, LinkState, LocalError, Move, SaslState, SessionState

TABLES = [
    pytest.param(states.CONNECTION, ConnectionState, ConnectionState.START, id="connection"),
    pytest.param(states.SESSION, SessionState, SessionState.UNMAPPED, id="session"),
    pytest.param(states.LINK, LinkState, LinkState.UNATTACHED, id="link"),
    pytest.param(states.SASL, SaslState, SaslState.START, id="sasl"),
]


@pytest.mark.parametrize(("table", "kind", "start"), TABLES)
def test_every_state_has_a_row_and_can_be_reached(
    table: Mapping[Any, Mapping[Move, Any]], kind: Any, start: Any
) -> None:
    reached = {start}
    while new := {after for state in reached for after in table[state].values()} - reached:
        reached |= new
    assert reached == set(kind) == set(table)


@pytest.mark.parametrize(("table", "kind", "start"), TABLES)
def test_every_state_leads_to_the_end(
    table: Mapping[Any, Mapping[Move, Any]], kind: Any, start: Any
) -> None:
    ends = {state for state in kind if not table[state]}
    assert len(ends) == 1
    leads = set(ends)
    while new := {s for s in kind if leads & set(table[s].values())} - leads:
        leads |= new
    assert leads == set(kind)


def test_an_illegal_move_of_the_peer_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="amqp:illegal-state"):
        states.move(states.CONNECTION, ConnectionState.OPENED, Move.RECEIVE_OPEN)


def test_an_illegal_move_of_our_own_is_a_local_error() -> None:
    with pytest.raises(LocalError, match="cannot send open in state OPENED"):
        states.move(states.CONNECTION, ConnectionState.OPENED, Move.SEND_OPEN)
