"""Turns of connections, with a clock that the tests move: no time passes by itself."""

from __future__ import annotations

from collections.abc import Callable

from busway.runtime.turns import FRAMES_PER_STEP, FRAMES_PER_TURN, TURN_MIN_US, TURN_US, Turns


class Clock:
    """Rounds are called for and run one by one."""

    def __init__(self) -> None:
        self.us = 0
        self.rounds: list[Callable[[], None]] = []

    def now_us(self) -> int:
        return self.us

    def next_round(self, callback: Callable[[], None]) -> None:
        self.rounds.append(callback)

    def run_round(self) -> None:
        rounds, self.rounds = self.rounds, []
        for callback in rounds:
            callback()


class Sender:
    """A connection with so many frames to handle, each of which takes its time."""

    def __init__(self, clock: Clock, turns: Turns, frames: int, us_per_frame: int = 0) -> None:
        self.clock = clock
        self.turns = turns
        self.frames = frames
        self.us_per_frame = us_per_frame
        self.handled: list[int] = []
        """Frames of each turn."""

    @property
    def has_input(self) -> bool:
        return self.frames > 0

    def advance(self, frames_max: int) -> None:
        count = min(frames_max, self.frames)
        self.frames -= count
        self.handled[-1] += count
        self.clock.us += count * self.us_per_frame

    def take_turn(self) -> bool:
        self.handled.append(0)
        self.turns.handle(self)
        return self.has_input

    def read(self) -> None:
        if self.take_turn():
            self.turns.wait(self)


def test_what_fits_into_a_turn_is_handled_at_once() -> None:
    clock = Clock()
    turns = Turns(clock)
    sender = Sender(clock, turns, 64, us_per_frame=15)
    sender.read()
    assert sender.handled == [64]
    assert not clock.rounds


def test_a_turn_ends_after_so_many_frames_even_if_they_cost_nothing() -> None:
    clock = Clock()
    turns = Turns(clock)
    sender = Sender(clock, turns, 10_000)
    sender.read()
    assert FRAMES_PER_TURN <= sender.handled[0] < FRAMES_PER_TURN + FRAMES_PER_STEP


def test_a_turn_ends_after_so_much_time_however_few_frames_it_were() -> None:
    clock = Clock()
    turns = Turns(clock)
    sender = Sender(clock, turns, 10_000, us_per_frame=TURN_US)
    sender.read()
    assert sender.handled == [FRAMES_PER_STEP]


def test_what_is_left_takes_turns_with_the_others_in_their_order() -> None:
    clock = Clock()
    turns = Turns(clock)
    first, second = (Sender(clock, turns, 3 * FRAMES_PER_TURN) for _ in range(2))
    first.read()
    second.read()
    while clock.rounds:
        before = len(first.handled), len(second.handled)
        clock.run_round()
        assert len(first.handled) - before[0] <= 1
        assert len(second.handled) - before[1] <= 1
    assert first.frames == second.frames == 0
    assert len(turns) == 0


def test_one_who_asks_little_is_heard_between_any_two_turns_of_a_flood() -> None:
    clock = Clock()
    turns = Turns(clock)
    flood = Sender(clock, turns, 100 * FRAMES_PER_TURN)
    flood.read()
    for _ in range(10):
        clock.run_round()
        polite = Sender(clock, turns, 1)
        polite.read()
        assert polite.frames == 0
    assert flood.frames > 0


def test_turns_are_shorter_where_many_wait() -> None:
    clock = Clock()
    turns = Turns(clock)
    flood = [Sender(clock, turns, 10**6, us_per_frame=1) for _ in range(50)]
    for sender in flood:
        sender.read()
    began_us = clock.us
    clock.run_round()
    round_us = clock.us - began_us
    assert round_us <= 50 * (TURN_MIN_US + FRAMES_PER_STEP)
    assert all(sender.handled[-1] >= FRAMES_PER_STEP for sender in flood)


def test_who_has_left_gets_no_turn() -> None:
    clock = Clock()
    turns = Turns(clock)
    sender = Sender(clock, turns, 10 * FRAMES_PER_TURN)
    sender.read()
    turns.forget(sender)
    clock.run_round()
    assert len(sender.handled) == 1
    assert not clock.rounds
