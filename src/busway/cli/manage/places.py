"""Which messages of an entity a command is about: its own, its dead letters, others."""

from __future__ import annotations

from typing import Annotated

import typer

from busway.cli.manage.completing import entity_names
from busway.remote.console import refuse

Entity = Annotated[
    str,
    typer.Argument(
        metavar="ENTITY",
        help="A queue, or topic/Subscriptions/name.",
        autocompletion=entity_names,
    ),
]
DeadLetter = Annotated[bool, typer.Option("--dead-letter", help="Its dead letters.")]
TransferDeadLetter = Annotated[
    bool,
    typer.Option("--transfer-dead-letter", help="Those that could not be forwarded from it."),
]


def address_of(entity: str, dead_letter: bool, transfer: bool) -> str:
    from busway.model.names import DEAD_LETTER_NODE, TRANSFER_NODE

    if dead_letter and transfer:
        refuse("--dead-letter and --transfer-dead-letter are two places; name one.")
    path = entity.strip("/")
    if dead_letter:
        return f"{path}/{DEAD_LETTER_NODE}"
    return f"{path}/{TRANSFER_NODE}/{DEAD_LETTER_NODE}" if transfer else path


def seconds(option: str, text: str) -> float:
    from busway.model.durations import parse_duration

    try:
        ms = int(text) * 1000 if text.isascii() and text.isdigit() else parse_duration(text)
    except ValueError:
        ms = -1
    if ms is None or ms < 0:
        refuse(f"{option} is '{text}', and must be a duration such as 5s, 500ms or 10m.")
    return ms / 1000
