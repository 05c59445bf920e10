"""`busway queue|topic|subscription create|show|list|update|delete`.

The three groups have the same verbs. Their options are the rows of `management/options.py`: the
signatures that typer reads are made of those.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from busway.cli.manage import showing
from busway.cli.manage.completing import entity_names
from busway.cli.manage.showing import Json, Yes
from busway.cli.options import Command, Group
from busway.remote.console import ConnectionString, credentials_at, ended_well, refuse
from busway.remote.management.options import KINDS, SUBSCRIPTION, Option, Value, options_of

GROUP_HELP = """Make, show, change and delete {kinds}.

\b
{examples}

It needs the right to manage, and works against Azure Service Bus as well.
"""
EXAMPLES = {
    "queue": """\
  busway queue create orders --lock-duration 30s --requires-session
  busway queue list --sort messages
  busway queue show orders
  busway queue update orders --max-delivery-count 5 --forward-to archive
  busway queue delete orders""",
    "topic": """\
  busway topic create news --default-message-time-to-live 14d
  busway topic list --search new
  busway topic show news
  busway topic update news --status SendDisabled
  busway topic delete news""",
    "subscription": """\
  busway subscription create news sport --sql "goals > 3"
  busway subscription list news
  busway subscription show news sport
  busway subscription update news sport --lock-duration 1m
  busway subscription delete news sport""",
}
PLURALS = {"queue": "queues", "topic": "topics", "subscription": "subscriptions of a topic"}
SORTS = ("name", "messages", "dead-letters", "size", "created")

Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=entity_names)
]


def add_to(app: typer.Typer) -> None:
    for kind in KINDS:
        text = GROUP_HELP.format(kinds=PLURALS[kind], examples=EXAMPLES[kind])
        group = typer.Typer(cls=Group, help=text, no_args_is_help=True)
        verbs: dict[str, Callable[..., None]] = {
            "create": _create(kind),
            "show": _show(kind),
            "list": _list(kind),
            "update": _update(kind),
            "delete": _delete(kind),
        }
        for verb, function in verbs.items():
            group.command(verb, cls=Command, help=function.__doc__)(function)
        app.add_typer(group, name=kind)


# --- Signatures ----------------------------------------------------------------------------------


def _names(kind: str) -> list[inspect.Parameter]:
    """What names one of them."""
    name = Annotated[
        str,
        typer.Argument(
            metavar="NAME", help=f"Of the {kind}.", autocompletion=entity_names, show_default=False
        ),
    ]
    found = [_parameter("name", name)]
    return [_parameter("topic", Topic), *found] if kind == SUBSCRIPTION else found


def _parameter(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _option(option: Option) -> inspect.Parameter:
    if option.value is Value.FLAG:
        flags = f"{option.flag}/--no-{option.flag.removeprefix('--')}"
        kind: Any = Annotated[
            bool | None, typer.Option(flags, help=option.help, show_default=False)
        ]
    else:
        metavar = {Value.SPAN: "DURATION", Value.COUNT: "N", Value.PATH: "NAME"}.get(
            option.value, "TEXT"
        )
        kind = Annotated[
            str | None,
            typer.Option(option.flag, metavar=metavar, help=option.help, show_default=False),
        ]
    return _parameter(option.name, kind, None)


def _signed(
    function: Callable[..., None], parameters: list[inspect.Parameter], text: str
) -> Callable[..., None]:
    """The function as typer sees it."""
    shared = [
        _parameter("as_json", Json, False),
        _parameter("connection_string", ConnectionString, None),
    ]
    signature = inspect.Signature([*parameters, *shared])
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__annotations__ = {
        each.name: each.annotation for each in signature.parameters.values()
    }
    function.__doc__ = text
    return function


def _given(kind: str, values: Mapping[str, Any]) -> dict[str, str]:
    """What was said, by option."""
    return {
        option.name: _said(value)
        for option in options_of(kind)
        if (value := values.get(option.name)) is not None
    }


def _said(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _path(values: Mapping[str, Any]) -> str:
    topic, name = values.get("topic"), str(values["name"]).strip("/")
    return name if topic is None else f"{topic}/Subscriptions/{name}"


@contextmanager
def entities_at(connection_string: str | None) -> Iterator[Any]:
    """The entities of the namespace that is meant; mistakes end the command."""
    from busway.remote.management.entities import Entities, OptionError

    credentials = credentials_at(connection_string)
    try:
        with ended_well(credentials):
            yield Entities(credentials)
    except OptionError as error:
        refuse(str(error))


# --- Verbs ---------------------------------------------------------------------------------------


def _create(kind: str) -> Callable[..., None]:
    def create(**values: Any) -> None:
        from busway.cli.manage.rules import first_rule

        rule = first_rule(values) if kind == SUBSCRIPTION else None
        with entities_at(values["connection_string"]) as entities:
            made = entities.create(kind, _path(values), _given(kind, values), rule)
            made = entities.show(kind, made["name"])
        if values["as_json"]:
            showing.tell(made)
        else:
            how = ", partitioned" if made.get("partitioned") else ""
            print(f"created {kind} {made['name']}{how}")

    parameters = [*_names(kind), *map(_option, options_of(kind))]
    if kind == SUBSCRIPTION:
        from busway.cli.manage.rules import FIRST_RULE

        parameters += [_parameter(name, each, None) for name, each in FIRST_RULE.items()]
    text = f"Create a {kind}. What is not said has the service's default."
    return _signed(create, parameters, text)


def _update(kind: str) -> Callable[..., None]:
    def update(**values: Any) -> None:
        given = _given(kind, values)
        if not given:
            refuse("What is to change? Name it: 'busway " + kind + " update --help' says how.")
        with entities_at(values["connection_string"]) as entities:
            entities.update(kind, _path(values), given)
            changed = entities.show(kind, _path(values))
        if values["as_json"]:
            showing.tell(changed)
        else:
            print(f"changed {kind} {changed['name']}")

    can_change = [each for each in options_of(kind) if not each.fixed]
    text = f"Change what is named of a {kind}; everything else stays as it is."
    return _signed(update, [*_names(kind), *map(_option, can_change)], text)


def _delete(kind: str) -> Callable[..., None]:
    def delete(**values: Any) -> None:
        path = _path(values)
        with entities_at(values["connection_string"]) as entities:
            there = entities.show(kind, path)
            held = sum(there["counts"].values())
            what = f"{kind} '{path}' at {entities.address}"
            if there.get("subscriptions"):
                what += f" and its {there['subscriptions']:,} subscriptions"
            showing.confirm(f"Delete {what}, with {held:,} messages?", values["yes"])
            entities.delete(kind, path)
        if values["as_json"]:
            showing.tell({"deleted": path, "messages": held})
        else:
            print(f"deleted {kind} {path}")

    text = f"Delete a {kind} with everything in it. Asks first."
    return _signed(delete, [*_names(kind), _parameter("yes", Yes, False)], text)


def _show(kind: str) -> Callable[..., None]:
    def show(**values: Any) -> None:
        from busway.cli.manage.overview import draw, with_partitions

        with entities_at(values["connection_string"]) as entities:
            found = entities.show(kind, _path(values))
            found = with_partitions(found, credentials_at(values["connection_string"]))
        if values["as_json"]:
            showing.tell(found)
        else:
            draw(kind, found)

    text = f"Show a {kind}: settings, messages by state, size, partitions, availability."
    return _signed(show, _names(kind), text)


def _list(kind: str) -> Callable[..., None]:
    def listed(**values: Any) -> None:
        from busway.cli.manage.overview import draw_list

        search, sort = values["search"], values["sort"]
        if sort not in SORTS:
            refuse(f"--sort is '{sort}', and must be one of {', '.join(SORTS)}.")
        with entities_at(values["connection_string"]) as entities:
            found = [
                each
                for each in entities.all(kind, values.get("topic"))
                if search is None or search.lower() in each["name"].lower()
            ]
        found.sort(key=_SORT_KEYS[sort])
        if values["as_json"]:
            showing.tell(found)
        else:
            draw_list(kind, found)

    search = Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only those with this in their name.")
    ]
    sort = Annotated[
        str, typer.Option(metavar="BY", help=f"One of {', '.join(SORTS)}.", show_default=True)
    ]
    parameters = [_parameter("search", search, None), _parameter("sort", sort, "name")]
    if kind == SUBSCRIPTION:
        parameters.insert(0, _parameter("topic", Topic))
    return _signed(listed, parameters, f"List {PLURALS[kind]}, with how many messages they hold.")


_SORT_KEYS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda each: each["name"].lower(),
    "messages": lambda each: -sum(each["counts"].values()),
    "dead-letters": lambda each: -each["counts"]["dead_letter"],
    "size": lambda each: -each["size_bytes"],
    "created": lambda each: each["created_at"] or "",
}
