"""The layer before AMQP: who is there (AMQP 5.3), one exchange, then it is done.

Each side is a small object that takes the peer's SASL frames and gives back the bytes to write.
There are no challenges: Python understands none, and no mechanism that is offered needs one.
"""

from __future__ import annotations

from functools import cache

from busway.amqp import codec, states
from busway.amqp.errors import ILLEGAL_STATE, UNAUTHORIZED_ACCESS, ProtocolError
from busway.amqp.performatives import Composite, SaslInit, SaslMechanisms, SaslOutcome
from busway.amqp.settings import ConnectionSettings
from busway.amqp.states import Move, SaslState

# Nothing is proved by these: a token on `$cbs` must follow (amqp.md 2 and 5).
WITHOUT_PROOF = ("ANONYMOUS", "MSSBCBS")

_OK = 0
_AUTH = 1


def plain_credentials(initial_response: bytes | None) -> tuple[str, str] | None:
    """Name and password of a PLAIN response (RFC 4616); None if it is not one."""
    parts = (initial_response or b"").split(b"\0")
    if len(parts) != 3:
        return None
    try:
        return parts[1].decode(), parts[2].decode()
    except UnicodeDecodeError:
        return None


@cache
def _offer(mechanisms: tuple[str, ...]) -> bytes:
    """Encoded once: a stranger who connects again and again costs as little as can be."""
    return codec.encode_sasl_frame(SaslMechanisms(list(mechanisms)))


@cache
def _outcome(code: int, data: bytes | None = None) -> bytes:
    return codec.encode_sasl_frame(SaslOutcome(code, data))


class SaslServer:
    """Offers mechanisms, judges the client's choice."""

    __slots__ = (
        "_settings",
        "hostname",
        "initial_response",
        "is_authenticated",
        "mechanism",
        "state",
    )

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self.state = SaslState.START
        self.hostname: str | None = None
        self.mechanism: str | None = None
        self.initial_response: bytes | None = None
        self.is_authenticated = False

    def start(self) -> bytes:
        """After the client's header: ours goes before, the mechanisms follow at once."""
        for step in (Move.RECEIVE_HEADER, Move.SEND_HEADER, Move.SEND_MECHANISMS):
            self.state = states.move(states.SASL, self.state, step)
        return _offer(self._settings.mechanisms)

    def receive(self, frame: Composite) -> bytes:
        if not isinstance(frame, SaslInit):
            raise ProtocolError(ILLEGAL_STATE, f"{type(frame).__name__} instead of sasl-init")
        self.state = states.move(states.SASL, self.state, Move.RECEIVE_INIT)
        self.hostname = frame.hostname
        self.mechanism = frame.mechanism
        self.initial_response = frame.initial_response
        self.is_authenticated = self._judge(frame.mechanism, frame.initial_response)
        self.state = states.move(states.SASL, self.state, Move.SEND_OUTCOME)
        if self.is_authenticated:
            return _outcome(_OK, b"Welcome!")
        return _outcome(_AUTH)

    def _judge(self, mechanism: str, initial_response: bytes | None) -> bool:
        if mechanism not in self._settings.mechanisms:
            return False
        # JS puts the key's name into the trace of ANONYMOUS: never look at it.
        if mechanism in WITHOUT_PROOF:
            return True
        return self._settings.authenticate(mechanism, initial_response)


class SaslClient:
    """Chooses PLAIN if it has credentials, else ANONYMOUS."""

    __slots__ = ("_settings", "initial_response", "is_authenticated", "mechanism", "state")

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        # Its header went out when the connection was told to open.
        self.state = states.move(states.SASL, SaslState.START, Move.SEND_HEADER)
        self.is_authenticated = False
        self.mechanism: str | None = None
        self.initial_response: bytes | None = None

    def start(self) -> bytes:
        """After the server's header: it is the server's turn."""
        self.state = states.move(states.SASL, self.state, Move.RECEIVE_HEADER)
        return b""

    def receive(self, frame: Composite) -> bytes:
        if isinstance(frame, SaslMechanisms):
            self.state = states.move(states.SASL, self.state, Move.RECEIVE_MECHANISMS)
            return self._choose(frame.sasl_server_mechanisms)
        if isinstance(frame, SaslOutcome):
            self.state = states.move(states.SASL, self.state, Move.RECEIVE_OUTCOME)
            self.is_authenticated = frame.code == _OK
            return b""
        raise ProtocolError(ILLEGAL_STATE, f"{type(frame).__name__} is not understood")

    def _choose(self, offered: list[str]) -> bytes:
        credentials = self._settings.credentials
        self.mechanism = "ANONYMOUS" if credentials is None else "PLAIN"
        self.initial_response = (
            b"" if credentials is None else f"\0{credentials[0]}\0{credentials[1]}".encode()
        )
        if self.mechanism not in offered:
            raise ProtocolError(UNAUTHORIZED_ACCESS, f"the server does not offer {self.mechanism}")
        self.state = states.move(states.SASL, self.state, Move.SEND_INIT)
        return codec.encode_sasl_frame(
            SaslInit(self.mechanism, self.initial_response, self._settings.hostname)
        )
