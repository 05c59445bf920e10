"""`busway receive` and `busway peek`: messages taken, and messages looked at."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from busway.cli.manage import message_lines, showing
from busway.cli.manage.places import DeadLetter, Entity, TransferDeadLetter, address_of, seconds
from busway.cli.options import Command
from busway.remote.console import ConnectionString, credentials_at, ended_well, number, refuse

if TYPE_CHECKING:
    from busway.remote.wire.receiving import Receiver, Taken

RECEIVE_HELP = """Receive messages, and settle each: complete it, unless something else is said.

\b
  busway receive orders                                one message, within 5 seconds
  busway receive orders --count 100 --wait 30s --json >orders.jsonl
  busway receive orders --settle dead-letter --reason Unreadable
  busway receive orders --settle none                  look at it, and hand it back uncounted
  busway receive orders --next-session --count 0       all of the next session
  busway receive orders --sequence-number 42           one that was deferred
  busway receive orders --body >picture.png            the body, and nothing else

A message is shown before it is settled, so that one that could not be written is not lost. It needs
the right to listen, and works against Azure Service Bus as well.
"""
PEEK_HELP = """Look at messages. Nothing is locked, and nothing counts as delivered.

\b
  busway peek orders                                   the first ten
  busway peek orders --count 0 --json >all.jsonl       all of them, over all partitions
  busway peek orders --state scheduled
  busway peek orders --dead-letter --where "sys.Label = 'paid'"
  busway peek orders --from 281474976710700            from that sequence number on

Messages come in the order of their sequence numbers, so partition after partition. It needs the
right to listen, and works against Azure Service Bus as well.
"""
STATES = ("active", "scheduled", "deferred", "dead-letter", "transfer")
COUNT_MAX = 1_000_000_000
NUMBER_MAX = (1 << 63) - 1
AT_A_TIME = 100
JSON_LINES = Annotated[
    bool,
    typer.Option("--json", help="A JSON object in each line, as 'send --json-lines' takes it."),
]
Body = Annotated[bool, typer.Option("--body", help="Only the bodies, each followed by a newline.")]


def add_to(app: typer.Typer) -> None:
    app.command("receive", cls=Command, help=RECEIVE_HELP)(receive)
    app.command("peek", cls=Command, help=PEEK_HELP)(peek)


# --- Peek ----------------------------------------------------------------------------------------


def peek(
    entity: Entity,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE", help=f"One of {', '.join(STATES)}.  [default: all but the last two]"
        ),
    ] = None,
    dead_letter: DeadLetter = False,
    transfer_dead_letter: TransferDeadLetter = False,
    count: Annotated[
        str, typer.Option("--count", "-n", metavar="N", help="How many; 0 for all.")
    ] = "10",
    first: Annotated[
        str, typer.Option("--from", metavar="N", help="The first sequence number.")
    ] = "0",
    session_id: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only of this session.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="Only those that a rule with this filter would take."),
    ] = None,
    only_body: Body = False,
    as_json: JSON_LINES = False,
    connection_string: ConnectionString = None,
) -> None:
    from busway.remote.wire.conditions import condition
    from busway.remote.wire.message_json import told
    from busway.remote.wire.receiving import Receiver

    if state is not None and state not in STATES:
        refuse(f"--state is '{state}', and must be one of {', '.join(STATES)}.")
    most = number("--count", count, 0, COUNT_MAX)
    start = number("--from", first, 0, NUMBER_MAX)
    dead_letter = dead_letter or state == "dead-letter"
    transfer = transfer_dead_letter or state == "transfer"
    address = address_of(entity, dead_letter, transfer)
    wanted = None if state in ("dead-letter", "transfer") else state
    credentials = credentials_at(connection_string)
    with ended_well(credentials):
        matches = None if where is None else condition(where)
        with Receiver(address, credentials) as receiver:
            found = (
                told(each, dead_letter=dead_letter or transfer)
                for each in receiver.peek(start, session_id)
                if matches is None or matches(each)
            )
            chosen = (each for each in found if wanted is None or each["state"] == wanted)
            shown = islice(chosen, most or None)
            if as_json or only_body:
                for each in shown:
                    _write(each, as_json, only_body)
                return
            messages = list(shown)
    if messages:
        message_lines.listed(messages)
    else:
        print("There are no such messages.")


# --- Receive -------------------------------------------------------------------------------------

SETTLEMENTS = ("complete", "abandon", "defer", "dead-letter", "none")


def receive(
    entity: Entity,
    count: Annotated[
        str,
        typer.Option(
            "--count",
            "-n",
            metavar="N",
            help="How many at most; 0 for all that come.  [default: 1]",
        ),
    ] = "1",
    wait: Annotated[
        str,
        typer.Option("--wait", "-w", metavar="DURATION", help="How long to wait for the next one."),
    ] = "5s",
    settle: Annotated[
        str, typer.Option(metavar="HOW", help=f"One of {', '.join(SETTLEMENTS)}.")
    ] = "complete",
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why it is dead-lettered.")
    ] = None,
    description: Annotated[
        str | None, typer.Option(metavar="TEXT", help="And in more words.")
    ] = None,
    delete: Annotated[
        bool,
        typer.Option(
            "--receive-and-delete", help="Without locks: gone as soon as it is sent to us."
        ),
    ] = False,
    dead_letter: DeadLetter = False,
    transfer_dead_letter: TransferDeadLetter = False,
    session_id: Annotated[str | None, typer.Option(metavar="TEXT", help="Of this session.")] = None,
    next_session: Annotated[
        bool, typer.Option("--next-session", help="Of the next session that has messages.")
    ] = False,
    sequence_number: Annotated[
        list[str] | None,
        typer.Option(metavar="N", help="One that was deferred; may be repeated."),
    ] = None,
    only_body: Body = False,
    as_json: JSON_LINES = False,
    connection_string: ConnectionString = None,
) -> None:
    from busway.remote.wire.receiving import Receiver, Settlement

    if settle not in SETTLEMENTS:
        refuse(f"--settle is '{settle}', and must be one of {', '.join(SETTLEMENTS)}.")
    if (reason or description) and settle != "dead-letter":
        refuse("--reason and --description are for --settle dead-letter.")
    if delete and settle != "complete":
        refuse("What is received and deleted cannot be settled otherwise. Leave one of them out.")
    if session_id is not None and next_session:
        refuse("--session-id names a session, --next-session takes any. Leave one of them out.")
    most = number("--count", count, 0, COUNT_MAX) or COUNT_MAX
    wait_s = seconds("--wait", wait)
    numbers = [number("--sequence-number", each, 0, NUMBER_MAX) for each in sequence_number or ()]
    address = address_of(entity, dead_letter, transfer_dead_letter)
    how = None if settle == "none" else Settlement(settle)
    credentials = credentials_at(connection_string)
    got = 0
    with ended_well(credentials), Receiver(address, credentials, delete=delete) as receiver:
        if (session_id is not None or next_session) and not receiver.open_session(
            session_id, wait_s
        ):
            print("busway: No session has messages.", file=sys.stderr)
            return
        is_dead = dead_letter or transfer_dead_letter
        if numbers:
            taken: Iterator[Sequence[Taken]] = iter([receiver.take_deferred(numbers)])
        else:
            taken = _taken(receiver, most, wait_s)
        held: list[Taken] = []
        for some in taken:
            for each in some:
                _show(receiver, each, is_dead, as_json, only_body)
            sys.stdout.flush()
            got += len(some)
            if how is None or how is Settlement.ABANDON:
                held += some  # until the end: else they would come again
            elif not delete:
                receiver.settle(some, how, reason=reason, description=description)
        if how is None:
            receiver.hand_back(held)
        else:
            receiver.settle(held, how)
    if not got and not as_json and not only_body:
        print(f"busway: No message came within {wait}.", file=sys.stderr)


def _taken(receiver: Receiver, most: int, wait_s: float) -> Iterator[Sequence[Taken]]:
    left = most
    while left > 0:
        some = receiver.take(min(left, AT_A_TIME), wait_s)
        if not some:
            return
        left -= len(some)
        yield some


def _show(
    receiver: Receiver, taken: Taken, dead_letter: bool, as_json: bool, only_body: bool
) -> None:
    from busway.remote.wire.message_json import told

    token = None if taken.token is None else str(taken.token)
    message = told(taken.payload, dead_letter=dead_letter, lock_token=token)
    if as_json or only_body:
        _write(message, as_json, only_body)
    else:
        message_lines.whole(message)


def _write(message: dict[str, Any], as_json: bool, only_body: bool) -> None:
    if only_body:
        sys.stdout.flush()
        sys.stdout.buffer.write(message_lines.body_bytes(message) + b"\n")
    elif as_json:
        showing.tell_line(message)
