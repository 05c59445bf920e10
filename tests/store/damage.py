"""The table of damage: what is done to a store's files, and what its owner is told.

    python -m tests.store.damage [FLIPS] [SEED]

The files are those of a killed process, copied once; each damage is done to a copy of them, and
then everything is read as a broker reads it. Wrong is a message that was not written like this;
silent is one that is missing although nobody was told anything.
"""

from __future__ import annotations

import logging
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from busway.model.message import MessageState
from busway.store.base import Counters, SessionCount, StoreError, SubQueueKey, SubQueueKind
from busway.store.sqlite import SqliteStore
from busway.store.sqlite_log import log_of
from busway.store.sqlite_verify import verify_store
from tests.store.places import MAIN, PARTITION, Owner, facts, message, number

MESSAGES = 400
OPENS_MAX = 12
"""Each page with damage costs one opening."""


@dataclass
class Row:
    """One line of the table."""

    count: int = 0
    wrong: int = 0
    silent: int = 0
    missing: int = 0
    told: Counter[str] = field(default_factory=Counter)


class Told(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def make(folder: Path) -> dict[int, tuple[object, ...]]:
    """A store of many commits, half of them in the log only; what is in it, by number."""
    chance = random.Random(7)
    path = folder / "live" / "store.db"
    owner = Owner(SqliteStore(path, create=True, checkpoint_pages=1 << 30))
    key = SubQueueKey(7, PARTITION, SubQueueKind.MAIN)
    owner.commit(sub_queues=[(MAIN, key)], counters={MAIN: Counters()})
    rows, counters = {}, Counters()
    for counter in range(1, MESSAGES + 1):
        if counter == MESSAGES // 2:
            owner.store.close()
            owner = Owner(SqliteStore(path, create=False, checkpoint_pages=1 << 30))
        body = chance.randbytes(chance.choice([40, 900, 900, 20_000]))
        each = message(
            counter,
            bare=body,
            size=len(body),
            enqueued_ms=1_000 + counter,
            session_id=chance.choice(["red", "blue"]),
            expires_ms=chance.choice([None, 1 << 40]),
        )
        counters.next_counter, counters.active = counter + 1, counter
        counters.bytes += len(body)
        rows[number(counter)] = each
        in_session = sum(row.session_id == each.session_id for row in rows.values())
        owner.commit(
            puts=[(MAIN, each)],
            counters={MAIN: counters.copy()},
            session_counts=[SessionCount(MAIN, each.session_id or "", in_session)],
        )
    killed = folder / "killed"
    killed.mkdir()
    for file in path.parent.iterdir():
        if not file.name.endswith("-shm"):
            shutil.copy(file, killed)
    owner.store.close()
    clean = folder / "clean"
    clean.mkdir()
    shutil.copy(path, clean)
    shutil.copy(path.with_name("store.db-mark"), clean)
    return {each: facts(row) for each, row in rows.items()}


def read_all(path: Path) -> tuple[dict[int, tuple[object, ...]], list[str]]:
    """Everything that a broker would hand out, and what it and its operator are told."""
    told = Told()
    log = logging.getLogger("busway.store")
    log.addHandler(told)
    texts: list[str] = []
    found: dict[int, tuple[object, ...]] = {}
    store = SqliteStore(path, create=False)
    try:
        for _ in range(OPENS_MAX):
            try:
                opened = store.open()
                found = {}
                for record in opened.sub_queues:
                    after, page = 0, store.read_page(record.slot, 0, state=MessageState.ACTIVE)
                    while page:
                        found |= {each.number: facts(each) for each in page}
                        after = page[-1].number
                        page = store.read_page(record.slot, after, state=MessageState.ACTIVE)
                    if len(found) != record.counters.active:
                        store.recount(record.slot)
                break
            except StoreError as error:
                texts.append(str(error))
                found = {}
    finally:
        store.close()
        log.removeHandler(told)
    return found, [*texts, *told.texts]


def flip(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def cut(path: Path, chance: random.Random) -> None:
    with path.open("r+b") as file:
        file.truncate(chance.randrange(path.stat().st_size))


def remove(path: Path, _: random.Random) -> None:
    path.unlink()


DAMAGES: dict[str, tuple[str, bool, Callable[[Path, random.Random], None]]] = {
    "flip in the store": ("clean", False, flip),
    "flip in the log": ("killed", True, flip),
    "flip under a log": ("killed", False, flip),
    "store cut": ("clean", False, cut),
    "log cut": ("killed", True, cut),
    "store missing": ("clean", False, remove),
    "log missing": ("killed", True, remove),
}
ONCE = ("store missing", "log missing")


def run(flips: int, seed: int) -> dict[str, Row]:
    table = {name: Row() for name in DAMAGES}
    with tempfile.TemporaryDirectory(prefix="busway-damage-") as name:
        folder = Path(name)
        truth = make(folder)
        for what, (source, in_log, do) in DAMAGES.items():
            chance = random.Random(f"{seed} {what}")
            for turn in range(1 if what in ONCE else flips):
                copy = folder / f"copy-{turn}"
                shutil.copytree(folder / source, copy)
                path = copy / "store.db"
                do(log_of(path) if in_log else path, chance)
                note(table[what], path, truth)
                shutil.rmtree(copy)
    return table


def note(row: Row, path: Path, truth: dict[int, tuple[object, ...]]) -> None:
    found, texts = read_all(path)
    row.count += 1
    row.wrong += sum(truth.get(each) != value for each, value in found.items())
    missing = len(truth.keys() - found.keys())
    row.missing += missing
    if missing and not texts and not verify_store(path).problems:
        row.silent += missing
    row.told[texts[0].replace(str(path), "FILE")[:90] if texts else "(nothing was damaged)"] += 1


def main() -> None:
    flips = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    logging.getLogger("busway.store").propagate = False
    for what, row in run(flips, seed).items():
        print(
            f"{what}: {row.count} times, delivered wrong {row.wrong}, lost without a word"
            f" {row.silent}, not delivered {row.missing}"
        )
        for text, count in row.told.most_common(4):
            print(f"    {count:4} x  {text}")


if __name__ == "__main__":
    main()
