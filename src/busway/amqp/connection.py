"""A connection without I/O: bytes in, events out; calls in, bytes out (AMQP 2.4).

This file owns the order of a connection's life (headers, SASL, open, close), the channels, and the
bytes that wait for the transport. It has no clock: time is an argument of `tick`.

Whatever the peer sends, nothing is raised: what breaks a rule of the connection turns into a close
that says which, and a `Closed` event; after that, input is ignored. Rules of one session or one
link cost only that session or link.

Input can be handled in slices: `feed` takes bytes, `advance` handles some frames of them, in their
order. `receive` is both at once, for those who have no others waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from busway.amqp import codec, states
from busway.amqp.errors import (
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    ProtocolError,
)
from busway.amqp.events import Closed, Event, Opened
from busway.amqp.idle import IdleWatch
from busway.amqp.input import Input, StrangerQuota
from busway.amqp.link import Link, LinkRole
from busway.amqp.performatives import Attach, Begin, Close, Composite, Error, Open
from busway.amqp.sasl import SaslClient, SaslServer
from busway.amqp.session import Session
from busway.amqp.settings import (
    MIN_IDLE_TIMEOUT_MS,
    MIN_MAX_FRAME_SIZE,
    ConnectionSettings,
    Role,
)
from busway.amqp.states import ConnectionState, LocalError, Move

__all__ = ["Connection", "ConnectionSettings", "Role"]

Frame = tuple[int, int, Composite | None, bytes]

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
_HEADER_SIZE = 8

_SASL_FRAME = 1
# AMQP 5.3.1 says 512, which some passwords do not fit into.
_MAX_SASL_FRAME_SIZE = 4_096
_EMPTY_FRAME = codec.encode_frame(0, None)
# Larger frames than this gain nothing and keep others waiting.
_MAX_FRAME_SIZE_SENT = 1_048_576
# Frames are decoded from so many bytes at a time: what is decoded and not handled yet is little.
_DECODED_BYTES = 16_384

_OPEN_NOT_SENT = (ConnectionState.HDR_EXCH, ConnectionState.OPEN_RCVD)
_CLOSE_SENT = (
    ConnectionState.OC_PIPE,
    ConnectionState.CLOSE_PIPE,
    ConnectionState.CLOSE_SENT,
    ConnectionState.DISCARDING,
    ConnectionState.END,
)
_OF_CONNECTION = (Open, Begin, Close)
_FRAMES_AT_ONCE = 1_000_000


def _frame_size(data: bytes, offset: int) -> int:
    """How many bytes from `offset` on make up a frame, as far as they tell."""
    return int.from_bytes(data[offset : offset + 4], "big") if len(data) - offset >= 4 else 4


class Connection:
    """One end of a connection. A server waits; a client begins with `open`."""

    __slots__ = (
        "_by_channel",
        "_by_remote_channel",
        "_ended_channels",
        "_frames",
        "_held",
        "_idle",
        "_input",
        "_is_reported_closed",
        "_output",
        "_output_size",
        "_partial_bytes",
        "_partial_bytes_max",
        "_read",
        "_sasl",
        "_stranger",
        "closed",
        "link_count",
        "links_by_name",
        "links_max",
        "on_output",
        "pending_bytes",
        "remote_max_frame_size",
        "remote_open",
        "role",
        "settings",
        "state",
    )

    def __init__(self, settings: ConnectionSettings, *, role: Role) -> None:
        self.settings = settings
        self.role = role
        self.state = ConnectionState.START
        # The end: once the output is written, the transport can be closed.
        self.closed = False
        self.remote_open: Open | None = None
        self.remote_max_frame_size = MIN_MAX_FRAME_SIZE
        # Called when there is output after there was none; then not before `take_output`.
        self.on_output: Callable[[], None] | None = None
        # A link is one of its name and direction on a connection (E14).
        self.links_by_name: dict[tuple[str, LinkRole], Link] = {}
        self.link_count = 0
        # The peer has not proved who it is: it gets little of everything until `trust`.
        self._stranger = None if settings.stranger is None else StrangerQuota(settings.stranger)
        self.links_max = settings.max_links
        if self._stranger is not None:
            self.links_max = self._stranger.links_max
        # Payload that waits for the peer to open the windows of its sessions.
        self.pending_bytes = 0
        self._sasl: SaslServer | SaslClient | None = None
        self._by_channel: dict[int, Session] = {}
        self._by_remote_channel: dict[int, Session] = {}
        self._ended_channels: set[int] = set()
        """Of the peer, which may not have done with them: no more than `channel_max` of them."""
        self._partial_bytes = 0
        self._partial_bytes_max = settings.max_partial_bytes
        self._idle = IdleWatch(settings.idle_timeout_ms)
        self._input = Input(_HEADER_SIZE)
        # Decoded and not handled yet.
        self._frames: deque[Frame] = deque()
        # The reader of the layer that the bytes belong to: takes from an offset, returns the next.
        self._read: Callable[[bytes, int, list[Event]], int] = self._read_header
        self._output: list[bytes] = []
        self._output_size = 0
        # What a client writes before the SASL layer is done; None when it is.
        self._held: list[bytes] | None = None
        self._is_reported_closed = False

    @property
    def sasl_mechanism(self) -> str | None:
        """What the client chose; None if it skipped SASL."""
        return None if self._sasl is None else self._sasl.mechanism

    @property
    def sasl_hostname(self) -> str | None:
        """Whom the client said it wants to talk to, before it said so in its open."""
        return self._sasl.hostname if isinstance(self._sasl, SaslServer) else None

    @property
    def sessions(self) -> list[Session]:
        return list(self._by_channel.values())

    # Output

    @property
    def output_size(self) -> int:
        return self._output_size

    def take_output(self) -> bytes:
        """All bytes that wait for the transport."""
        data = self._output[0] if len(self._output) == 1 else b"".join(self._output)
        self._output.clear()
        self._output_size = 0
        return data

    def write_frame(self, frame: bytes) -> None:
        if self._held is None:
            self._write(frame)
        else:
            self._held.append(frame)

    def _write(self, data: bytes) -> None:
        self._idle.has_sent = True
        self._output.append(data)
        self._output_size += len(data)
        if len(self._output) == 1 and self.on_output is not None:
            self.on_output()

    # What our side asks for

    def open(self) -> None:
        """Send open. A client starts with this; a server answers by itself."""
        if self.state is ConnectionState.START:
            self.state = states.move(states.CONNECTION, self.state, Move.SEND_HEADER)
            if self.settings.skip_sasl:
                self._write(AMQP_HEADER)
            else:
                self._sasl = SaslClient(self.settings)
                self._write(SASL_HEADER)
                self._held = [AMQP_HEADER]
        self.state = states.move(states.CONNECTION, self.state, Move.SEND_OPEN)
        settings = self.settings
        self.write_frame(
            codec.encode_frame(
                0,
                Open(
                    container_id=settings.container_id,
                    hostname=settings.hostname,
                    max_frame_size=settings.max_frame_size,
                    channel_max=settings.channel_max,
                    idle_time_out=settings.idle_timeout_ms or None,
                    properties=settings.properties,
                ),
            )
        )

    def begin(self) -> Session:
        """Ask the peer for a session; its answer is a `Begun` event."""
        if self.closed or self.state in _CLOSE_SENT or self.state is ConnectionState.START:
            raise LocalError("cannot begin a session on a connection that is not open")
        channel = self._free_channel(0)
        if self.remote_open is not None and channel > self.remote_open.channel_max:
            raise LocalError(f"the peer allows no channel above {self.remote_open.channel_max}")
        session = self._by_channel[channel] = Session(self, channel)
        session.send_begin()
        return session

    def close(self, condition: str | None = None, description: str | None = None) -> None:
        """Send close; `Closed` follows when the peer has answered or the transport is gone."""
        if self.closed or self.state in _CLOSE_SENT:
            return
        self._send_close(None if condition is None else Error(condition, description))

    def _send_close(self, error: Error | None) -> None:
        if self.state in _OPEN_NOT_SENT:
            # AMQP 2.4.3: also a connection that fails at once is opened, then closed.
            self.open()
        step = Move.SEND_CLOSE if error is None else Move.SEND_CLOSE_WITH_ERROR
        if step not in states.CONNECTION[self.state]:
            # No header was agreed on, so there is no way to say it.
            self._finish()
            return
        self.state = states.move(states.CONNECTION, self.state, step)
        self.write_frame(codec.encode_frame(0, Close(error)))
        for session in self._by_channel.values():
            session.stop()

    # Input

    def receive(self, data: bytes) -> list[Event]:
        """Take bytes from the transport, cut anywhere; returns what they mean."""
        self.feed(data)
        events: list[Event] = []
        while self.has_input:
            self._advance(_FRAMES_AT_ONCE, events)
        return events

    def feed(self, data: bytes) -> None:
        """Keep bytes from the transport until `advance` handles them."""
        if self.closed:
            return
        self._idle.has_received = True
        self._input.feed(data)

    @property
    def has_input(self) -> bool:
        """Whether `advance` has something to do."""
        return not self.closed and bool(self._frames or self._input)

    def advance(self, frames_max: int) -> list[Event]:
        """Handle about so many frames of what was fed; returns what they mean.

        A disposition that decides about many deliveries counts as more than one frame.
        """
        events: list[Event] = []
        self._advance(frames_max, events)
        return events

    def _advance(self, frames_max: int, events: list[Event]) -> None:
        frames, left = self._frames, frames_max
        try:
            while left > 0 and not self.closed:
                if frames:
                    left -= self._handle(*frames.popleft(), events)
                elif self._input:
                    self._read_some(events)
                    left -= not frames
                else:
                    return
        except ProtocolError as error:
            self._fail(Error(error.condition, error.description), events)

    def _read_some(self, events: list[Event]) -> None:
        """Take a step in the input."""
        data, offset = self._input.current()
        after = self._read(data, offset, events)
        if self._stranger is not None:
            self._stranger.charge_bytes(after - offset)
        self._input.handled_up_to(after)

    @property
    def is_stranger(self) -> bool:
        return self._stranger is not None

    def trust(self) -> None:
        """The peer has proved who it is: the limits for strangers are over."""
        self._stranger = None
        self.links_max = self.settings.max_links

    def eof(self) -> list[Event]:
        """The transport is gone."""
        events: list[Event] = []
        self._end(None, events)
        return events

    def _read_header(self, data: bytes, offset: int, events: list[Event]) -> int:
        if len(data) - offset < _HEADER_SIZE:
            self._input.needed = _HEADER_SIZE
            return offset
        header = data[offset : offset + _HEADER_SIZE]
        is_sasl_done = self._sasl is not None and self._sasl.is_authenticated
        if header == SASL_HEADER and not is_sasl_done and self._may_use_sasl():
            self._start_sasl()
        elif header == AMQP_HEADER and (is_sasl_done or self._may_skip_sasl()):
            self._start_amqp()
        else:
            # AMQP 2.2: who does not like the header answers with its own and hangs up.
            if self.role is Role.SERVER:
                self._write(SASL_HEADER if self._may_use_sasl() else AMQP_HEADER)
            raise ProtocolError(NOT_IMPLEMENTED, f"protocol header {header!r} is not supported")
        return offset + _HEADER_SIZE

    def _may_use_sasl(self) -> bool:
        if self.role is Role.CLIENT:
            return self._sasl is not None
        return bool(self.settings.mechanisms)

    def _may_skip_sasl(self) -> bool:
        if self.role is Role.CLIENT:
            return self.settings.skip_sasl and self.state is not ConnectionState.START
        return self.settings.allow_without_sasl and self._sasl is None

    def _start_sasl(self) -> None:
        if self.role is Role.SERVER:
            self._write(SASL_HEADER)
            self._sasl = SaslServer(self.settings)
        assert self._sasl is not None
        reply = self._sasl.start()
        if reply:
            self._write(reply)
        self._read = self._read_sasl_frame

    def _read_sasl_frame(self, data: bytes, offset: int, events: list[Event]) -> int:
        """One frame at a time, because what follows the last one is a header, not a frame."""
        assert self._sasl is not None
        self._input.needed = _frame_size(data, offset)
        # With its size field at least, so that a size of less than that is seen to be wrong.
        frame = data[offset : offset + max(self._input.needed, 4)]
        frames, length = codec.decode_frames(frame, 0, _MAX_SASL_FRAME_SIZE)
        if not frames:
            return offset
        frame_type, _, performative, _ = frames[0]
        if frame_type != _SASL_FRAME or performative is None:
            raise ProtocolError(FRAMING_ERROR, "not a SASL frame")
        reply = self._sasl.receive(performative)
        if reply:
            self._write(reply)
        if self._sasl.state is states.SaslState.DONE:
            self._finish_sasl(self._sasl)
        return offset + length

    def _finish_sasl(self, sasl: SaslServer | SaslClient) -> None:
        if not sasl.is_authenticated:
            raise ProtocolError(UNAUTHORIZED_ACCESS, f"SASL {sasl.mechanism} failed")
        self._read = self._read_header
        if self._held is not None:
            held, self._held = self._held, None
            for frame in held:
                self._write(frame)

    def _start_amqp(self) -> None:
        self.state = states.move(states.CONNECTION, self.state, Move.RECEIVE_HEADER)
        if self.state is ConnectionState.HDR_RCVD:
            self.state = states.move(states.CONNECTION, self.state, Move.SEND_HEADER)
            self._write(AMQP_HEADER)
        self._read = self._read_frames

    def _read_frames(self, data: bytes, offset: int, events: list[Event]) -> int:
        """Decode some; `_handle` takes them one by one."""
        piece, start = data, offset
        if len(data) - offset > _DECODED_BYTES:
            size = max(_DECODED_BYTES, min(_frame_size(data, offset), self.settings.max_frame_size))
            piece, start = data[offset : offset + size], 0
        frames, after = codec.decode_frames(piece, start, self.settings.max_frame_size)
        if not frames:
            self._input.needed = _frame_size(data, offset)
        self._frames.extend(frames)
        return offset + after - start

    def _handle(
        self,
        frame_type: int,
        channel: int,
        performative: Composite | None,
        payload: bytes,
        events: list[Event],
    ) -> int:
        """One frame; returns for how many it counts."""
        if frame_type == _SASL_FRAME:
            raise ProtocolError(FRAMING_ERROR, "a SASL frame after SASL")
        if self._stranger is not None:
            self._stranger.charge_frame()
        if performative is None:
            return 1  # An empty frame: the peer is alive.
        session = self._by_remote_channel.get(channel)
        if (
            session is not None
            and self.state is ConnectionState.OPENED
            and type(performative) not in _OF_CONNECTION
        ):
            return session.receive(performative, payload, events)
        self._receive(channel, performative, events)
        return 1

    def _receive(self, channel: int, performative: Composite, events: list[Event]) -> None:
        """A frame of the connection itself."""
        if isinstance(performative, Open):
            self._receive_open(performative, events)
        elif isinstance(performative, Close):
            self._receive_close(performative, events)
        elif self.state in _CLOSE_SENT:
            pass  # AMQP 2.4.6, DISCARDING: what the peer sent before it saw our close.
        elif self.state is not ConnectionState.OPENED:
            raise ProtocolError(ILLEGAL_STATE, f"{type(performative).__name__} before open")
        elif isinstance(performative, Begin):
            self._receive_begin(channel, performative, events)
        elif channel in self._ended_channels and not isinstance(performative, Attach):
            pass  # The Python SDK ends a session, then detaches the links that it has left in it.
        else:
            raise ProtocolError(
                FRAMING_ERROR, f"{type(performative).__name__} on channel {channel} before begin"
            )

    def _receive_open(self, performative: Open, events: list[Event]) -> None:
        self.state = states.move(states.CONNECTION, self.state, Move.RECEIVE_OPEN)
        if self.state is ConnectionState.CLOSE_SENT:
            return
        self.remote_open = performative
        if performative.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise ProtocolError(
                INVALID_FIELD, f"max-frame-size is below {MIN_MAX_FRAME_SIZE} (AMQP 2.7.1)"
            )
        self.remote_max_frame_size = min(performative.max_frame_size, _MAX_FRAME_SIZE_SENT)
        idle_timeout_ms = performative.idle_time_out
        if idle_timeout_ms and idle_timeout_ms < MIN_IDLE_TIMEOUT_MS:
            raise ProtocolError(
                NOT_ALLOWED,
                f"an idle-time-out below {MIN_IDLE_TIMEOUT_MS} ms is not supported",
            )
        self._idle.promise(idle_timeout_ms)
        if self.state is ConnectionState.OPEN_RCVD:
            self.open()
        events.append(Opened(performative))

    def _receive_begin(self, channel: int, begin: Begin, events: list[Event]) -> None:
        if channel > self.settings.channel_max:
            # AMQP 2.7.1, channel-max.
            raise ProtocolError(
                FRAMING_ERROR, f"channel {channel} is above {self.settings.channel_max}"
            )
        if channel in self._by_remote_channel:
            raise ProtocolError(ILLEGAL_STATE, f"begin on channel {channel}, which is in use")
        if begin.remote_channel is None:
            session = Session(self, self._free_channel(channel))
            self._by_channel[session.channel] = session
        else:
            answered = self._by_channel.get(begin.remote_channel)
            if answered is None or answered.remote_channel is not None:
                raise ProtocolError(
                    INVALID_FIELD, f"begin answers channel {begin.remote_channel}, which asked not"
                )
            session = answered
        self._by_remote_channel[channel] = session
        self._ended_channels.discard(channel)
        session.receive_begin(begin, channel, events)

    def _receive_close(self, close: Close, events: list[Event]) -> None:
        if self.state is ConnectionState.HDR_EXCH:
            raise ProtocolError(ILLEGAL_STATE, "close before open")
        self.state = states.move(states.CONNECTION, self.state, Move.RECEIVE_CLOSE)
        if self.state is ConnectionState.CLOSE_RCVD:
            self.state = states.move(states.CONNECTION, self.state, Move.SEND_CLOSE)
            self.write_frame(codec.encode_frame(0, Close()))
        self._end(close.error, events)

    # The end

    def _fail(self, error: Error, events: list[Event]) -> None:
        """The peer broke the connection's rules: say so, and listen no more."""
        if self.state not in _CLOSE_SENT:
            self._send_close(error)
        self._end(error, events)

    def _end(self, error: Error | None, events: list[Event]) -> None:
        if self._is_reported_closed:
            return
        self._is_reported_closed = True
        for session in list(self._by_channel.values()):
            session.report_gone(error, events)
            self.forget_session(session)
        self._finish()
        events.append(Closed(error))

    def _finish(self) -> None:
        self.state = ConnectionState.END
        self.closed = True
        self._held = None
        self._frames.clear()
        self._input.clear()

    # For sessions

    def _free_channel(self, wanted: int) -> int:
        """A channel for our end: the peer's own number if it is free, which traces read well."""
        if wanted not in self._by_channel:
            return wanted
        return next(n for n in range(len(self._by_channel) + 1) if n not in self._by_channel)

    def forget_session(self, session: Session) -> None:
        self._by_channel.pop(session.channel, None)
        if session.remote_channel is not None:
            self._by_remote_channel.pop(session.remote_channel, None)
            self._ended_channels.add(session.remote_channel)

    def forget_link_name(self, link: Link) -> None:
        key = (link.name, link.role)
        if self.links_by_name.get(key) is link:
            del self.links_by_name[key]

    def charge_partial(self, change: int) -> None:
        """Count what deliveries in parts hold, over all links."""
        self._partial_bytes += change
        if self.settings.partial_room is not None:
            self.settings.partial_room.charge(change)
        if change > 0 and self._partial_bytes > self._partial_bytes_max:
            raise ProtocolError(
                RESOURCE_LIMIT_EXCEEDED,
                f"incomplete deliveries hold more than {self._partial_bytes_max} bytes",
            )

    def make_room(self, message_bytes: int) -> None:
        """A link may bring one message of this size, in frames that cost more than their bytes."""
        self._partial_bytes_max = max(self._partial_bytes_max, message_bytes + message_bytes // 4)

    # Time

    def next_tick_ms(self, now_ms: int) -> int | None:
        """When `tick` is due next; None for never. Ask again after `Opened` and every `tick`."""
        return None if self.closed else self._idle.due_ms(now_ms)

    def tick(self, now_ms: int) -> list[Event]:
        """Keep our promise of an empty frame; give up on a peer that broke its own (2.4.5)."""
        events: list[Event] = []
        if self.closed:
            return events
        must_send, is_silent = self._idle.check(now_ms)
        if is_silent:
            # What was asked of it goes unheard; the standard wants the close said nevertheless.
            error = Error(
                RESOURCE_LIMIT_EXCEEDED,
                f"nothing was received for more than {self.settings.idle_timeout_ms} ms",
            )
            self._fail(error, events)
        elif must_send and self.state not in _CLOSE_SENT:
            self._write(_EMPTY_FRAME)
            self._idle.has_sent = False
        return events
