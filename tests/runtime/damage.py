"""The table of damage on a whole broker: what is done to its data folder, and what its user sees.

    python -m tests.runtime.damage [FLIPS] [SEED]

A server is filled and killed once, and once stopped. Each damage is done to a copy of one of these
folders; then the real server is started on it, and, if it does not refuse, drained with the SDK.
Wrong is a message that was not sent like this to this entity; silent is one that is missing and
nobody was told anything: no refusal, no line in the log, no ill store in `/health`.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusError

from busway.testing import Server
from busway.testing.server import ServerError

CONFIG = """
[[queues]]
name = "plain"
[[queues]]
name = "parts"
partitioned = true
[[topics]]
name = "news"
[[topics.subscriptions]]
name = "all"
"""
PLACES = ("plain", "parts", "news")
MESSAGES = 40
DRAIN_S = 120.0
SHOWN = 110

Sent = dict[str, dict[str, tuple[bytes, object]]]
"""By place and message id: body and property."""
Harm = Callable[[Path, Path, random.Random], None]
"""Done to a folder; the second is that of another broker."""


@dataclass
class Row:
    """One line of the table."""

    count: int = 0
    wrong: int = 0
    silent: int = 0
    missing: int = 0
    told: Counter[str] = field(default_factory=Counter)


# --- what is there -------------------------------------------------------------------------------


def fill(running: Server, chance: random.Random) -> Sent:
    sent: Sent = {}
    with ServiceBusClient.from_connection_string(running.connection_string) as client:
        for place in PLACES:
            get = client.get_topic_sender if place == "news" else client.get_queue_sender
            here = sent.setdefault(place, {})
            with get(place) as sender:
                for number in range(MESSAGES):
                    body = chance.randbytes(chance.choice([20, 800, 800, 9_000]))
                    id_ = f"{place}-{number}-{chance.getrandbits(32):x}"
                    here[id_] = (body, number)
                    each = ServiceBusMessage(body, message_id=id_)
                    each.application_properties = {"n": number}
                    sender.send_messages(each)
    return sent


def make(folder: Path) -> Sent:
    """`killed` has logs and marks, `clean` has marks and no logs, `other` is another broker's."""
    chance = random.Random(11)
    with Server(config=CONFIG, data=folder / "live") as running:
        sent = fill(running, chance)
        running.kill()
        copy(folder / "live", folder / "killed")
        running.start()
        running.stop()
        copy(folder / "live", folder / "clean")
    with Server(config=CONFIG, data=folder / "other") as running:
        fill(running, random.Random(12))
        running.stop()
    return sent


def copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*-shm", "*.lock", "reserve"))


# --- damage --------------------------------------------------------------------------------------


def some_file(folder: Path, chance: random.Random) -> Path:
    """A store, a log or the catalog: each as often as the others, however small it is."""
    found = [*folder.glob("store-*.db"), *folder.glob("catalog.db"), *folder.glob("*-wal")]
    return chance.choice(sorted(each for each in found if each.stat().st_size))


def flip(folder: Path, _: Path, chance: random.Random) -> None:
    path = some_file(folder, chance)
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def cut(folder: Path, _: Path, chance: random.Random) -> None:
    path = some_file(folder, chance)
    with path.open("r+b") as file:
        file.truncate(chance.randrange(path.stat().st_size))


def without(*names: str) -> Harm:
    def harm(folder: Path, _: Path, __: random.Random) -> None:
        for name in names:
            (folder / name).unlink()

    return harm


def from_elsewhere(*names: str) -> Harm:
    def harm(folder: Path, other: Path, _: random.Random) -> None:
        for name in names:
            for old in folder.glob(f"{name}*"):
                old.unlink()
            for new in other.glob(f"{name}*"):
                shutil.copy(new, folder)

    return harm


def another_file(*names: str) -> Harm:
    """The file alone: what lay beside the old one still does."""

    def harm(folder: Path, other: Path, _: random.Random) -> None:
        for name in names:
            shutil.copy(other / name, folder / name)

    return harm


ONCE: dict[str, tuple[str, Harm]] = {
    "catalog missing": ("clean", without("catalog.db")),
    "catalog and mark missing": ("clean", without("catalog.db", "catalog.db-mark")),
    "catalog's log missing": ("killed", without("catalog.db-wal")),
    "a store missing": ("clean", without("store-0.db")),
    "a store's log missing": ("killed", without("store-0.db-wal")),
    "every log missing": ("killed", without("store-0.db-wal", "store-1.db-wal", "catalog.db-wal")),
    "every store missing": ("clean", without("store-0.db", "store-1.db")),
    "a store of another broker": ("clean", from_elsewhere("store-0.db")),
    "all stores of another broker": ("clean", from_elsewhere("store-0.db", "store-1.db")),
    "catalog of another broker": ("clean", from_elsewhere("catalog.db")),
    "only its file": ("clean", another_file("catalog.db")),
    "stores changed places": ("clean", lambda folder, _, __: swap(folder)),
}


def swap(folder: Path) -> None:
    (folder / "store-0.db").rename(folder / "aside")
    (folder / "store-1.db").rename(folder / "store-0.db")
    (folder / "aside").rename(folder / "store-1.db")


# --- looking -------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What a user got, and what was said."""

    received: dict[str, list[tuple[str, bytes, object]]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)


def look(data: Path) -> Seen:
    seen = Seen()
    running = Server(config=CONFIG, data=data, arguments=["--metrics", "open"])
    try:
        try:
            running.start()
        except ServerError as refusal:
            seen.told.append(refused(str(refusal)))
            return seen
        for place in PLACES:
            seen.received[place] = drain(running, place, seen)
        seen.told += health(running)
        running.stop()
        seen.told += warnings(running.log)
    finally:
        running.close()
    return seen


def refused(text: str) -> str:
    """The sentence of a server that did not start."""
    found = re.search(r"^busway: (.*)", text, re.MULTILINE)
    return f"refused: {found[1]}" if found else f"ended: {text[-300:]}"


def warnings(log: str) -> list[str]:
    return [
        line for line in log.splitlines() if re.search(r"\b(WARNING|ERROR|CRITICAL)\b", line, re.I)
    ]


def health(running: Server) -> list[str]:
    try:
        with urlopen(f"http://localhost:{running.port}/health", timeout=60) as answer:
            told = json.load(answer)
    except HTTPError as ill:
        told = json.load(ill)
    return [
        f"health: {store['name']} {store.get('reason') or store['damaged_messages']}"
        for store in told["stores"]
        if store.get("reason") or store["damaged_messages"]
    ]


def drain(running: Server, place: str, seen: Seen) -> list[tuple[str, bytes, object]]:
    """Until the broker says itself that nothing is left, or that a store does not serve."""
    found: list[tuple[str, bytes, object]] = []
    until = time.monotonic() + DRAIN_S
    with ServiceBusClient.from_connection_string(running.connection_string) as client:
        while time.monotonic() < until:
            try:
                with receiver_of(client, place) as receiver:
                    while len(found) < MESSAGES and (
                        page := receiver.receive_messages(MESSAGES, max_wait_time=1)
                    ):
                        found += [told_of(each) for each in page]
            except ServiceBusError as error:
                seen.told.append(f"client: {error}")
            if len(found) > 2 * MESSAGES or health(running) or not count_left(running, place):
                return found
    raise AssertionError(f"{place} could not be drained within {DRAIN_S:.0f} s")


def receiver_of(client: ServiceBusClient, place: str) -> ServiceBusReceiver:
    mode = "receiveanddelete"
    if place == "news":
        return client.get_subscription_receiver(place, "all", receive_mode=mode)
    return client.get_queue_receiver(place, receive_mode=mode)


def told_of(each: object) -> tuple[str, bytes, object]:
    body = b"".join(each.body)  # type: ignore[attr-defined]
    properties = each.application_properties or {}  # type: ignore[attr-defined]
    return str(each.message_id), body, properties.get(b"n")  # type: ignore[attr-defined]


def count_left(running: Server, place: str) -> int:
    """Active messages, as the broker counts them."""
    with urlopen(f"http://localhost:{running.port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    subscription = "all" if place == "news" else ""
    counted = [
        float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith("busway_messages{")
        and f'entity="{place}"' in line
        and f'subscription="{subscription}"' in line
        and 'state="active"' in line
    ]
    assert len(counted) == 1, counted
    return int(counted[0])


# --- the table -----------------------------------------------------------------------------------


def run(flips: int, cuts: int, seed: int, once: tuple[str, ...] = tuple(ONCE)) -> dict[str, Row]:
    table: dict[str, Row] = {}
    with tempfile.TemporaryDirectory(prefix="busway-damage-") as name:
        folder = Path(name)
        sent = make(folder)
        turns: list[tuple[str, str, Harm, int]] = []
        for source in ("clean", "killed"):
            turns.append((f"flip, {source}", source, flip, flips // 2))
            turns.append((f"cut, {source}", source, cut, cuts // 2))
        turns += [(what, *ONCE[what], 1) for what in once]
        turns.append(("nothing", "killed", lambda *_: None, 1))
        for what, source, harm, count in turns:
            chance = random.Random(f"{seed} {what}")
            row = table[what] = Row()
            for _ in range(count):
                data = folder / "data"
                copy(folder / source, data)
                harm(data, folder / "other", chance)
                note(row, look(data), sent)
                shutil.rmtree(data)
    return table


def note(row: Row, seen: Seen, sent: Sent) -> None:
    row.count += 1
    missing = 0
    for place, expected in sent.items():
        left = dict(expected)
        for id_, body, number in seen.received.get(place, ()):
            row.wrong += left.pop(id_, None) != (body, number)
        missing += len(left)
    row.missing += missing
    if missing and not seen.told:
        row.silent += missing
    row.told[shown(seen.told[0]) if seen.told else "(nothing was damaged)"] += 1


def shown(text: str) -> str:
    """Without what differs from one time to the next."""
    text = re.sub(r"/\S*/data", "DATA", text)
    text = re.sub(r"^\S+ \S+ (?=\w+ )|\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b[0-9a-f]{32}\b", "", text)
    return re.sub(r"\d+", "N", text)[:SHOWN]


def main() -> None:
    flips = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    for what, row in run(flips, flips // 5, seed).items():
        print(
            f"{what}: {row.count} times, delivered wrong {row.wrong}, lost without a word"
            f" {row.silent}, not delivered {row.missing}"
        )
        for text, count in row.told.most_common(6):
            print(f"    {count:4} x  {text}")


if __name__ == "__main__":
    main()
