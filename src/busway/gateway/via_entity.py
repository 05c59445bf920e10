"""The entity that an AMQP session's transactions go through (TXN-3, amqp.md 14).

It is the one of the session's first link to an entity; links of coordinators, `$cbs` and
`$management` do not count. Transactions may send to other entities by way of it, and settle its
messages only. A client that wants that (`EnableCrossEntityTransactions`) attaches its coordinator
before any other link: from then on a receiver of another entity is refused, because what it
receives could not be settled in a transaction. A session without such a coordinator may have
receivers of as many entities as it likes.
"""

from __future__ import annotations

from busway.amqp.link import Link
from busway.amqp.session import Session
from busway.amqp.states import LinkState
from busway.model.errors import RECEIVER_NOT_OF_VIA_ENTITY, BusError
from busway.model.names import name_key


class ViaEntity:
    """Of one session, for as long as that lasts: also after the first link has gone."""

    __slots__ = ("_decided", "_is_cross_entity", "_links")

    def __init__(self) -> None:
        self._is_cross_entity = False
        self._decided: str | None = None
        self._links: dict[Link, str] = {}
        """In the order of their attaches, until the first of them was accepted. A receiver that
        waits for a session is not yet, and may never be."""

    @property
    def path(self) -> str | None:
        """Of a queue or topic; None while there is no link to an entity."""
        if self._decided is not None:
            return self._decided
        return next(iter(self._links.values()), None)

    def coordinator_attached(self) -> None:
        if self.path is None:
            self._is_cross_entity = True

    def check_receiver(self, path: str) -> None:
        """Raise if a receiver of this queue or topic cannot be in the session."""
        via = self.path
        if self._is_cross_entity and via is not None and name_key(via) != name_key(path):
            raise BusError(RECEIVER_NOT_OF_VIA_ENTITY, entity=path, via=via)

    def attached(self, link: Link, path: str) -> None:
        """A link was accepted, or waits for a session."""
        if self._decided is None:
            self._links[link] = path
            self.decide()

    def given_up(self, link: Link) -> None:
        """The link waited, and was refused in the end."""
        if self._links.pop(link, None) is not None:
            self.decide()

    def decide(self) -> None:
        """The first link may have been accepted by now."""
        first = next(iter(self._links), None)
        if first is not None and first.state is not LinkState.ATTACH_RCVD:
            self._decided = self._links[first]
            self._links.clear()


def via_entity(session: Session) -> ViaEntity:
    if session.context is None:
        session.context = ViaEntity()
    assert isinstance(session.context, ViaEntity)
    return session.context
