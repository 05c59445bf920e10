"""`busway capture`: the switch of an entity's journal, what is in it, and who reads it (D-31)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from busway.remote.console import ConnectionString, fail, refuse, server_at

if TYPE_CHECKING:
    from busway.remote.client import RemoteServer

WORDS = ("on", "off")
OF_SERVER = "default"
"""What takes an entity's own limit back."""

HELP = """Keep the journal of an entity, or not; and show what it has.

\b
  busway capture orders                       since when, how much, who reads it
  busway capture orders on                    from now on
  busway capture orders on --retention 3d --max-size-mb 512
  busway capture news/Subscriptions/all off   what was told so far stays for its readers
  busway capture orders --retention default   as the server has it again

A journal tells what happens to messages; 'busway pipeline capture' copies it into a lake, and
switches it on by itself. To look needs the right to listen, to switch the right to manage.
"""


def add_to(app: typer.Typer, command: type[Any]) -> None:
    app.command("capture", cls=command, help=HELP)(capture)


def capture(
    entity: Annotated[
        str,
        typer.Argument(metavar="ENTITY", help="A queue or topic, or topic/Subscriptions/name."),
    ],
    word: Annotated[
        str | None, typer.Argument(metavar="[on|off]", help="Switch it.", show_default=False)
    ] = None,
    retention: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long events are kept: 3d, 12h, PT12H."),
    ] = None,
    max_size_mb: Annotated[
        str | None, typer.Option(metavar="N", help="How much is kept; beyond it the oldest go.")
    ] = None,
    held_size_mb: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="How much is kept for readers that are behind, beyond the other two. Each of the "
            f"three may be '{OF_SERVER}': as the server has it.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
    connection_string: ConnectionString = None,
) -> None:
    from busway.remote.client import RemoteError

    if word not in (None, *WORDS):
        refuse(f"'{word}' is neither on nor off.")
    options = {"retention": retention, "max_size_mb": max_size_mb, "held_size_mb": held_size_mb}
    wanted: dict[str, Any] = {
        name: _limit(name, text) for name, text in options.items() if text is not None
    }
    if word is not None:
        wanted["capture"] = word == "on"
    name = entity.strip("/")
    try:
        found = _asked(server_at(connection_string), name, wanted)
    except RemoteError as error:
        fail(error)
    if as_json:
        import json

        print(json.dumps(found, indent=2))
        return
    for line in draw(found, name, switched_off=word == "off"):
        print(line)


def _limit(name: str, text: str) -> str | int | None:
    """As the server takes it; what it would refuse is refused here."""
    from busway.model.retention import read_limit

    if text.lower() == OF_SERVER:
        return None
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else text
    try:
        read_limit(name, value)
    except ValueError as allowed:
        option = f"--{name.replace('_', '-')}"
        refuse(f"{option} is '{text}', and must be {allowed}, or {OF_SERVER}.")
    return value


def _asked(server: RemoteServer, name: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """What there is, after what was wanted is done."""
    from busway.remote.client import RemoteError

    try:
        if wanted:
            server.put(_path(name), wanted, name)
        return _look(server, name)
    except RemoteError as error:
        if error.word != "not-found":
            raise
        guess = f" Is it '{near}'?" if (near := server.nearest(name)) else ""
        raise RemoteError(f"There is no '{name}' at {server.address}.{guess}") from error


def _look(server: RemoteServer, name: str) -> dict[str, Any]:
    """The heads of its journal and who reads it; without partitions if it never had one."""
    from busway.remote.client import RemoteError

    try:
        found: dict[str, Any] = server.get(_path(name), name)
    except RemoteError as error:
        if error.word != "not-captured":
            raise
        kept = {each: error.facts[each] for each in ("limits", "own_limits")}
        return {"capture": False, "since": None, **kept, "partitions": [], "consumers": []}
    found["consumers"] = server.get(f"{_path(name)}/consumers", name)
    return found


def _path(name: str) -> str:
    from urllib.parse import quote

    return f"/{quote(name, safe='/')}/$journal"


# --- For a person --------------------------------------------------------------------------------

HEAD = ["partition", "offsets", "events", "bytes", "from", "to"]


def draw(found: dict[str, Any], name: str, *, switched_off: bool) -> Iterator[str]:
    from busway.remote.drawing import table

    partitions, readers = found["partitions"], found["consumers"]
    if found["capture"]:
        yield f"{name} is captured since {_time(found['since'])}."
    else:
        yield f"{name} is not captured."
    rows = sum(each["rows"] for each in partitions)
    if partitions:
        size = sum(each["bytes"] for each in partitions)
        yield f"Its journal has {rows:,} events, {size:,} bytes."
    yield f"It is kept for {_kept(found)}."
    if told := [each for each in partitions if each["next"]]:
        yield ""
        yield from table(HEAD, map(_row, told), colour=False)
    if readers:
        yield ""
        yield from table(["reader", "behind by", "holds until"], map(_reader, readers), False)
    behind = [each for each in readers if each["lag_rows"] > 0]
    if switched_off and behind:
        yield ""
        yield (
            f"{len(behind)} of its readers have not read all of it. What was told so far stays for "
            "them, within these limits; what happens from now on is told to nobody."
        )


def _kept(found: dict[str, Any]) -> str:
    limits, own = found["limits"], found["own_limits"]
    texts = {
        "retention": _span(limits["retention"]),
        "max_size_mb": f"{limits['max_size_mb']:,} MB",
        "held_size_mb": f"{limits['held_size_mb']:,} MB for readers that are behind",
    }
    shown = [f"{text} (its own)" if word in own else text for word, text in texts.items()]
    return f"{shown[0]} and up to {shown[1]}, {shown[2]}"


def _span(text: str) -> str:
    """`P3D` as `3d`, the way people write it."""
    return text.removeprefix("P").replace("T", "").lower()


def _row(each: dict[str, Any]) -> list[tuple[str, str]]:
    cells = (
        str(each["partition"]),
        f"{each['earliest']} to {each['next']}",
        f"{each['rows']:,}",
        f"{each['bytes']:,}",
        _time(each["earliest_time"]),
        _time(each["latest_time"]),
    )
    return [(cell, "") for cell in cells]


def _reader(each: dict[str, Any]) -> list[tuple[str, str]]:
    cells = each["name"], f"{each['lag_rows']:,} events", _time(each["expires"])
    return [(cell, "") for cell in cells]


def _time(text: str | None) -> str:
    """Of the server, to the second; UTC."""
    return "-" if text is None else text[:19].replace("T", " ") + "Z"
