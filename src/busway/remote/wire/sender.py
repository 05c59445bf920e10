"""A sender for Spark's tasks: many messages over one AMQP connection, each acknowledged.

Messages go out as fast as credit allows; whoever calls `finish` knows that all of them are stored.
A broker that is busy or being restarted is waited for. What was under way when a connection broke
is sent again, and may then be there twice unless the entity detects duplicates: that is for the
caller to know.
"""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Iterable

from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, Rejected
from busway.remote.connection import Pass
from busway.remote.wire.line import RETRYABLE, BrokenError, Line, RefusedError, text_of

log = logging.getLogger(__name__)

PATIENCE_S = 120.0
"""How long a broker that does not take messages is tried again: longer than a restart takes."""
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
WINDOW = 2_000
"""Messages under way at most: enough to keep the broker's commits full."""


class SendError(Exception):
    """The broker will not take a message, however often it is asked."""


class Sender:
    """Messages to one queue or topic. For one thread."""

    def __init__(
        self,
        entity: str,
        allowed: Pass,
        *,
        patience_s: float = PATIENCE_S,
        window: int = WINDOW,
    ) -> None:
        self.entity = entity
        self._allowed = allowed
        self._patience_s = patience_s
        self._window = window
        self._line: Line | None = None
        self._link: Link | None = None
        self._waiting: deque[tuple[bytes, bool]] = deque()
        """To be sent, in order; and whether it is a batch."""
        self._under_way: dict[int, tuple[bytes, bool]] = {}
        """Sent and not answered, by delivery id, in order."""
        self._until = time.monotonic() + patience_s
        self._pause_s = FIRST_PAUSE_S
        self.accepted = 0

    def send(self, message: bytes, *, batch: bool = False) -> None:
        """Take an encoded message, or a batch of them; stored when `finish` has returned."""
        self._waiting.append((message, batch))
        while len(self._waiting) + len(self._under_way) >= self._window:
            self._step()

    def send_all(self, messages: Iterable[bytes]) -> int:
        """Send them, wait until all are stored, and leave."""
        try:
            for message in messages:
                self.send(message)
            return self.finish()
        finally:
            self.close()

    def finish(self) -> int:
        """Wait until everything is stored; how many messages were, since it was made."""
        while self._waiting or self._under_way:
            self._step()
        return self.accepted

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = self._link = None

    # --- turns -----------------------------------------------------------------------------------

    def _step(self) -> None:
        """Send what may be sent, and take in at least one answer."""
        try:
            if self._line is None or self._link is None:
                self._line = Line(self.entity, self._allowed)
                self._link = self._line.sender(self.entity)
            line, link = self._line, self._link
            while self._waiting and link.credit > 0:
                message, is_batch = self._waiting.popleft()
                delivery_id = line.send(link, message, batch=is_batch)
                self._under_way[delivery_id] = message, is_batch
            line.turn()
            answers, line.answers = line.answers, []
            for delivery_ids, state in answers:
                self._answered(delivery_ids, state)
        except RefusedError as error:
            raise SendError(str(error)) from error
        except (OSError, BrokenError) as problem:
            self.close()
            self._waiting.extendleft(reversed(self._under_way.values()))
            self._under_way.clear()
            self._rest(problem)

    def _answered(self, delivery_ids: list[int], state: object) -> None:
        if isinstance(state, Accepted):
            for delivery_id in delivery_ids:
                if self._under_way.pop(delivery_id, None) is not None:
                    self.accepted += 1
            self._until, self._pause_s = time.monotonic() + self._patience_s, FIRST_PAUSE_S
            return
        error = state.error if isinstance(state, Rejected) else None
        if error is None or error.condition not in RETRYABLE:
            raise SendError(f"'{self.entity}' does not take a message: {text_of(error)}")
        # All that is under way goes again, in its order: what was taken meanwhile is a duplicate.
        raise BrokenError(text_of(error))

    def _rest(self, problem: Exception) -> None:
        if time.monotonic() + self._pause_s > self._until:
            raise SendError(
                f"The broker at {self._allowed.endpoint.host}:{self._allowed.endpoint.port} takes "
                f"no messages for '{self.entity}': {problem or type(problem).__name__}."
            ) from problem
        log.info("sending again in %.1f s: %s", self._pause_s, problem)
        time.sleep(self._pause_s * random.uniform(0.5, 1.0))
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
