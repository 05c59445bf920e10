"""Microseconds per message in the rules of a topic.

    python bench/filters.py [--rounds 7]

Each message is routed from its bytes: decoding its properties is part of the figure. Every rule
belongs to a subscription of its own, and one of them matches. The best round counts: on a shared
machine the others measure the neighbours.
"""

from __future__ import annotations

import argparse
import time
from uuid import UUID

from busway.amqp.codec import IMPLEMENTATION, scan_message
from busway.amqp.performatives import Properties
from busway.amqp.sections import encode_message
from busway.filters.rules import TopicRules
from busway.model.entities import CorrelationFilter, Rule, RuleFilter, SqlFilter
from busway.model.message import Message

ROUND_SECONDS = 0.1


def message() -> Message:
    encoded = encode_message(
        properties=Properties(message_id="m-1", subject="order", correlation_id="c-1"),
        application_properties={"region": "eu", "quantity": 7, "customer": 0, "express": True},
        data=b"x" * 1024,
    )
    return Message(bare=scan_message(encoded).bare, size=len(encoded))


def sql_equality(n: int) -> RuleFilter:
    return SqlFilter(f"customer = {n}")


def sql_typical(n: int) -> RuleFilter:
    return SqlFilter(f"sys.Label = 'order' AND quantity > 5 AND customer = {n}")


def correlation(n: int) -> RuleFilter:
    return CorrelationFilter(label="order", properties={"customer": n})


CASES = [
    ("SQL, one comparison", sql_equality, (1, 100, 2_000)),
    ("SQL, three comparisons", sql_typical, (1, 100, 2_000)),
    ("correlation, two conditions", correlation, (1, 1_000, 100_000)),
]


def microseconds(rules: TopicRules, rounds: int) -> float:
    sent = message()
    found = []
    for _ in range(rounds):
        count = 0
        start = time.perf_counter()
        while time.perf_counter() - start < ROUND_SECONDS:
            assert len(rules.route(sent)) == 1
            count += 1
        found.append((time.perf_counter() - start) / count)
    return min(found) * 1e6


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--rounds", type=int, default=7)
    rounds = arguments.parse_args().rounds
    print(f"codec: {IMPLEMENTATION}")
    for what, make, sizes in CASES:
        for size in sizes:
            rules = TopicRules(lambda: UUID(int=0))
            start = time.perf_counter()
            for n in range(size):
                rules.add(n, Rule(name="r", filter=make(n)))
            adding = (time.perf_counter() - start) / size * 1e6
            figure = microseconds(rules, rounds)
            print(
                f"{what:28} {size:7,} rules: {figure:8.1f} µs a message, {adding:5.1f} to add one"
            )


if __name__ == "__main__":
    main()
