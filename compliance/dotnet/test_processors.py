"""Processors: the SDK receives, and calls handlers; most applications are written so."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from sdk import WAIT_S, handler, result
from world import (
    World,
    is_empty,
    message,
    receive_one,
    seconds,
    wait_until,
    with_properties,
)

# isort: split

from Azure.Messaging.ServiceBus import (
    ProcessErrorEventArgs,
    ProcessMessageEventArgs,
    ProcessSessionEventArgs,
    ProcessSessionMessageEventArgs,
    ServiceBusErrorSource,
    ServiceBusProcessorOptions,
    ServiceBusReceiveMode,
    ServiceBusSessionProcessorOptions,
)
from System import BinaryData


class Processing:
    """A processor with handlers in Python, running until the end of a `with`."""

    def __init__(self, processor: Any, on_message: Callable[[Any], Any], kind: Any) -> None:
        self.processor = processor
        self.errors: list[Any] = []
        self._on_message = handler(kind, on_message)
        self._on_error = handler(ProcessErrorEventArgs, self.errors.append)
        processor.ProcessMessageAsync += self._on_message
        processor.ProcessErrorAsync += self._on_error

    def __enter__(self) -> Processing:
        result(self.processor.StartProcessingAsync())
        return self

    def __exit__(self, *_: object) -> None:
        result(self.processor.StopProcessingAsync())
        result(self.processor.DisposeAsync())


def processing(world: World, path: list[str], on_message: Any, **options: Any) -> Processing:
    chosen = with_properties(ServiceBusProcessorOptions(), options)
    processor = world.client.CreateProcessor(*path, chosen)
    return Processing(processor, on_message, ProcessMessageEventArgs)


def processing_sessions(world: World, queue: str, on_message: Any, **options: Any) -> Processing:
    chosen = ServiceBusSessionProcessorOptions()
    chosen.SessionIdleTimeout = seconds(1)
    processor = world.client.CreateSessionProcessor(queue, with_properties(chosen, options))
    return Processing(processor, on_message, ProcessSessionMessageEventArgs)


@pytest.mark.short
def test_a_processor_takes_all_messages_and_completes_them(world: World) -> None:
    queue = world.queue()
    sent = {str(number) for number in range(30)}
    world.send(queue, *sent)
    handled: list[str] = []
    with processing(
        world,
        [queue],
        lambda args: handled.append(args.Message.Body.ToString()),
        MaxConcurrentCalls=4,
    ) as running:
        wait_until(lambda: len(handled) >= len(sent))
    assert sorted(handled) == sorted(sent)
    assert not running.errors
    assert is_empty(world.receiver(queue))


def test_handlers_run_at_the_same_time(world: World) -> None:
    queue = world.queue()
    world.send(queue, *(str(number) for number in range(4)))
    together = threading.Barrier(4)
    met: list[int] = []

    def meet(_: Any) -> None:
        met.append(together.wait(WAIT_S))

    with processing(world, [queue], meet, MaxConcurrentCalls=4):
        wait_until(lambda: len(met) == 4)


def test_a_handler_that_fails_gets_the_message_again_until_it_is_dead_lettered(
    world: World,
) -> None:
    queue = world.queue(MaxDeliveryCount=3)
    world.send(queue, "poison")
    counts: list[int] = []

    def fail(args: Any) -> None:
        counts.append(args.Message.DeliveryCount)
        raise ValueError("not today")

    with processing(world, [queue], fail) as running:
        dead = receive_one(world.receiver(queue, dead_letters=True))
    assert counts == [1, 2, 3]
    assert dead.DeadLetterReason == "MaxDeliveryCountExceeded"
    assert {error.ErrorSource for error in running.errors} == {
        ServiceBusErrorSource.ProcessMessageCallback
    }
    assert "not today" in running.errors[0].Exception.Message
    assert running.errors[0].EntityPath == queue


@pytest.mark.short
def test_a_handler_settles_as_it_likes(world: World) -> None:
    queue = world.queue()
    world.send(queue, "complete", "bury", "defer")
    deferred: list[int] = []
    done: list[str] = []

    def settle(args: Any) -> None:
        body = args.Message.Body.ToString()
        if body == "complete":
            result(args.CompleteMessageAsync(args.Message))
        elif body == "bury":
            result(args.DeadLetterMessageAsync(args.Message, "Buried", "by its handler"))
        else:
            deferred.append(args.Message.SequenceNumber)
            result(args.DeferMessageAsync(args.Message))
        done.append(body)

    with processing(world, [queue], settle, AutoCompleteMessages=False) as running:
        wait_until(lambda: len(done) == 3)
    assert not running.errors
    receiver = world.receiver(queue)
    assert is_empty(receiver)
    assert receive_one(world.receiver(queue, dead_letters=True)).DeadLetterReason == "Buried"
    assert result(receiver.ReceiveDeferredMessageAsync(deferred[0])).Body.ToString() == "defer"


def test_a_processor_may_receive_and_delete(world: World) -> None:
    queue = world.queue()
    world.send(queue, "a", "b")
    handled: list[str] = []
    with processing(
        world,
        [queue],
        lambda args: handled.append(args.Message.Body.ToString()),
        ReceiveMode=ServiceBusReceiveMode.ReceiveAndDelete,
    ):
        wait_until(lambda: len(handled) == 2)
    assert is_empty(world.receiver(queue))


def test_the_lock_of_a_message_is_renewed_while_its_handler_works(world: World) -> None:
    queue = world.queue(LockDuration=seconds(5))
    world.send(queue, "slow")
    renewed = threading.Event()

    def work(args: Any) -> None:
        before = args.Message.LockedUntil
        wait_until(lambda: args.Message.LockedUntil.CompareTo(before) > 0)
        renewed.set()

    with processing(world, [queue], work) as running:
        assert renewed.wait(WAIT_S)
    assert not running.errors
    assert is_empty(world.receiver(queue))


def test_a_processor_on_a_subscription_takes_what_it_selects(world: World) -> None:
    topic = world.topic("all")
    world.send(topic, "news")
    handled: list[str] = []
    with processing(
        world, [topic, "all"], lambda args: handled.append(args.Message.Body.ToString())
    ):
        wait_until(lambda: handled == ["news"])


def test_a_stopped_processor_starts_again(world: World) -> None:
    queue = world.queue()
    handled: list[str] = []
    with processing(
        world, [queue], lambda args: handled.append(args.Message.Body.ToString())
    ) as running:
        world.send(queue, "one")
        wait_until(lambda: handled == ["one"])
        result(running.processor.StopProcessingAsync())
        assert not running.processor.IsProcessing
        world.send(queue, "two")
        result(running.processor.StartProcessingAsync())
        wait_until(lambda: handled == ["one", "two"])
    assert not running.errors


@pytest.mark.short
def test_a_session_processor_keeps_the_order_of_each_session(world: World) -> None:
    queue = world.queue(RequiresSession=True)
    names = [f"session {number}" for number in range(6)]
    for number in range(5):
        world.send(queue, *(message(str(number), SessionId=name) for name in names))
    handled: dict[str, list[str]] = defaultdict(list)
    with processing_sessions(
        world,
        queue,
        lambda args: handled[args.SessionId].append(args.Message.Body.ToString()),
        MaxConcurrentSessions=3,
    ) as running:
        wait_until(lambda: sum(map(len, handled.values())) == 30)
    assert handled == {name: ["0", "1", "2", "3", "4"] for name in names}
    assert not running.errors


def test_a_session_processor_tells_of_the_beginning_and_end_of_a_session(world: World) -> None:
    queue = world.queue(RequiresSession=True)
    told: list[str] = []

    def count(args: Any) -> None:
        state = result(args.GetSessionStateAsync())
        seen = int(state.ToString()) if state else 0
        result(args.SetSessionStateAsync(BinaryData(str(seen + 1))))

    running = processing_sessions(world, queue, count)
    opening = handler(ProcessSessionEventArgs, lambda args: told.append(f"begin {args.SessionId}"))
    closing = handler(ProcessSessionEventArgs, lambda args: told.append(f"end {args.SessionId}"))
    running.processor.SessionInitializingAsync += opening
    running.processor.SessionClosingAsync += closing
    with running:
        world.send(queue, *(message("x", SessionId="s") for _ in range(3)))
        wait_until(lambda: told == ["begin s", "end s"])
    receiver = world.opened(result(world.client.AcceptSessionAsync(queue, "s")))
    assert result(receiver.GetSessionStateAsync()).ToString() == "3"
    assert not running.errors


def test_a_session_processor_may_want_certain_sessions_and_give_them_back(world: World) -> None:
    queue = world.queue(RequiresSession=True)
    world.send(queue, *(message(name, SessionId=name) for name in "abc"))
    handled: list[str] = []

    def release(args: Any) -> None:
        handled.append(args.SessionId)
        args.ReleaseSession()

    chosen = ServiceBusSessionProcessorOptions()
    chosen.SessionIds.Add("b")
    processor = world.client.CreateSessionProcessor(queue, chosen)
    with Processing(processor, release, ProcessSessionMessageEventArgs):
        wait_until(lambda: handled == ["b"])
        world.send(queue, message("again", SessionId="b"))
        wait_until(lambda: handled == ["b", "b"])
    others = [world.opened(result(world.client.AcceptNextSessionAsync(queue))) for _ in range(2)]
    assert {receiver.SessionId for receiver in others} == {"a", "c"}
