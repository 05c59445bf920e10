"""Two engines that do anything they may, in any order: nothing is lost, credit never negative."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from busway.amqp.events import AttachRequested, Closed, Disposed, Event, TransferReceived
from busway.amqp.link import Link, LinkRole
from busway.amqp.performatives import Accepted, Source, Target
from tests.amqp.pair import Pair, every, settings

SIZES = st.sampled_from([0, 1, 300, 500, 2_000])


class Exchange(RuleBasedStateMachine):
    """Links in both directions over small frames and windows; the wire moves when it likes."""

    def __init__(self) -> None:
        super().__init__()
        small = {"max_frame_size": 512, "incoming_window": 4, "max_message_size": 10_000}
        self.pair = Pair(settings("client", **small), settings("server", **small))
        self.senders: list[Link] = []
        self.receivers: list[Link] = []
        self.sent: dict[tuple[str, bool], list[bytes]] = {}
        self.received: dict[tuple[str, bool], list[bytes]] = {}
        self.outcomes: dict[tuple[str, bool], int] = {}
        self.unsettled: dict[tuple[str, bool], int] = {}
        # The highest delivery count that a receiver has ever allowed.
        self.limits: dict[Link, int] = {}
        self.names = 0
        self.number = 0

    @initialize()
    def open(self) -> None:
        """A link of each direction with credit, so that there is something to do at once."""
        self.pair.open()
        for role in LinkRole:
            self.attach(role, 0)
        self.quiet()
        for which in range(2):
            self.give_credit(which, 10, False)
        self.quiet()
        assert [link.credit for link in self.senders] == [10, 10]

    def quiet(self) -> None:
        """Carry until nobody has anything to say."""
        while self.pair.client.output_size or self.pair.server.output_size:
            self.carry(self.pair.to_server)
            self.carry(self.pair.to_client)

    def told(self, events: list[Event]) -> None:
        assert every(events, Closed) == []
        for event in events:
            if isinstance(event, AttachRequested):
                event.link.accept()
                self.keep(event.link)
            elif isinstance(event, TransferReceived):
                key = (event.link.name, event.link.session.connection is self.pair.server)
                self.received.setdefault(key, []).append(event.payload)
                if not event.settled:
                    event.link.settle([event.delivery_id], Accepted())
            elif isinstance(event, Disposed):
                key = (event.link.name, event.link.session.connection is self.pair.client)
                self.outcomes[key] = self.outcomes.get(key, 0) + len(event.delivery_ids)

    def keep(self, link: Link) -> None:
        (self.senders if link.is_sender else self.receivers).append(link)

    def carry(self, move: Callable[[], None]) -> None:
        move()
        events = self.pair.client_events + self.pair.server_events
        self.pair.forget_events()
        self.told(events)

    @rule()
    def begin(self) -> None:
        if len(self.pair.client.sessions) < 3:
            self.pair.client.begin()

    @rule(role=st.sampled_from(LinkRole), which=st.integers(0, 2))
    def attach(self, role: LinkRole, which: int) -> None:
        if self.names < 6:
            sessions = self.pair.client.sessions
            self.names += 1
            link = sessions[which % len(sessions)].attach(
                f"link{self.names}", role, source=Source("queue"), target=Target("queue")
            )
            self.keep(link)

    @rule(which=st.integers(0, 9), credit=st.integers(0, 20), drain=st.booleans())
    @precondition(lambda self: self.receivers)
    def give_credit(self, which: int, credit: int, drain: bool) -> None:
        link = self.receivers[which % len(self.receivers)]
        if link.is_attached:
            link.set_credit(credit, drain=drain)
            self.limits[link] = max(self.limits.get(link, 0), link.delivery_count + credit)

    @rule(which=st.integers(0, 9), sizes=st.lists(SIZES, min_size=1), settled=st.booleans())
    @precondition(lambda self: any(link.credit and link.is_attached for link in self.senders))
    def send(self, which: int, sizes: list[int], settled: bool) -> None:
        ready = [link for link in self.senders if link.credit and link.is_attached]
        link = ready[which % len(ready)]
        key = (link.name, link.session.connection is self.pair.client)
        for size in sizes[: link.credit]:
            self.number += 1
            payload = b"%d:" % self.number + bytes(size)
            link.send(payload, b"%d" % self.number, settled=settled)
            self.sent.setdefault(key, []).append(payload)
            if not settled:
                self.unsettled[key] = self.unsettled.get(key, 0) + 1

    @rule(which=st.integers(0, 9))
    @precondition(lambda self: any(link.drain for link in self.senders))
    def drained(self, which: int) -> None:
        draining = [link for link in self.senders if link.drain]
        draining[which % len(draining)].drained()

    @rule()
    def to_server(self) -> None:
        self.carry(self.pair.to_server)

    @rule()
    def to_client(self) -> None:
        self.carry(self.pair.to_client)

    @invariant()
    def credit_is_not_negative(self) -> None:
        assert all(link.credit >= 0 for link in self.senders + self.receivers)

    @invariant()
    def no_credit_is_used_twice(self) -> None:
        for link in self.receivers:
            assert link.delivery_count <= self.limits.get(link, 0)

    @invariant()
    def nothing_arrives_twice_or_out_of_order(self) -> None:
        for key, payloads in self.received.items():
            assert payloads == self.sent[key][: len(payloads)]

    def teardown(self) -> None:
        self.quiet()
        assert self.received == self.sent
        assert self.outcomes == self.unsettled
        assert all(link.pending_bytes == 0 for link in self.senders)
        assert all(link.unsettled == 0 for link in self.senders)


TestExchange = Exchange.TestCase
TestExchange.settings = hypothesis_settings(max_examples=120, stateful_step_count=60, deadline=None)
