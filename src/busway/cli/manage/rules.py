"""`busway rule create|show|list|update|delete`: which messages of a topic a subscription gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from busway.cli.manage import showing
from busway.cli.manage.completing import entity_names
from busway.cli.manage.showing import Json, Yes
from busway.cli.options import Command, Group
from busway.remote.console import ConnectionString, credentials_at, ended_well, refuse

if TYPE_CHECKING:
    from busway.model.entities import Rule, RuleFilter

HELP = """Make, show, change and delete the rules of a subscription.

\b
  busway rule create news sport goals --sql "goals > 3" --action "SET important = true"
  busway rule create news sport finals --correlation subject=final --correlation year:int=2026
  busway rule list news sport
  busway rule update news sport goals --sql "goals > 5"
  busway rule delete news sport '$Default' --yes

A subscription without rules gets nothing; '$Default', which a new one has, takes everything. It
needs the right to manage, and works against Azure Service Bus as well.
"""
Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=entity_names)
]
Subscription = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="The subscription.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the rule.")]
Sql = Annotated[
    str | None,
    typer.Option("--sql", metavar="SQL", help='Messages that this is true for: "goals > 3".'),
]
Correlation = Annotated[
    list[str] | None,
    typer.Option(
        "--correlation",
        metavar="NAME=VALUE",
        help="Messages with this value; may be repeated. subject, message_id, correlation_id, to, "
        "reply_to, session_id, reply_to_session_id, content_type, or an application property, "
        "with its type if it is no text: year:int=2026.",
    ),
]
Action = Annotated[
    str | None,
    typer.Option("--action", metavar="SQL", help='What is done to its copy: "SET a = 1".'),
]
TakesNothing = Annotated[
    bool, typer.Option("--false", help="Messages are not taken at all: a rule to be changed later.")
]

FIRST_RULE: dict[str, Any] = {"sql": Sql, "correlation": Correlation, "action": Action}
"""What a new subscription may have instead of a rule that takes everything."""
FIRST_RULE_NAME = "$Default"
LABEL = {"subject": "label"}
"""The service calls it so in filters."""


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(cls=Group, help=HELP, no_args_is_help=True)
    for name, function in (
        ("create", create),
        ("show", show),
        ("list", list_rules),
        ("update", update),
        ("delete", delete),
    ):
        group.command(name, cls=Command, help=function.__doc__)(function)
    app.add_typer(group, name="rule")


def first_rule(values: Mapping[str, Any]) -> Rule | None:
    from busway.model.entities import Rule

    sql, correlation, action = (values.get(each) for each in FIRST_RULE)
    if sql is None and not correlation and action is None:
        return None
    return Rule(name=FIRST_RULE_NAME, filter=_filter(sql, correlation), action=action)


def create(
    topic: Topic,
    subscription: Subscription,
    name: Name,
    sql: Sql = None,
    correlation: Correlation = None,
    takes_nothing: TakesNothing = False,
    action: Action = None,
    as_json: Json = False,
    connection_string: ConnectionString = None,
) -> None:
    """Create a rule. Without a filter it takes every message."""
    from busway.model.entities import Rule
    from busway.remote.management.rules import Rules

    wanted = _filter(sql, correlation, takes_nothing)
    credentials = credentials_at(connection_string)
    with ended_well(credentials):
        rules = Rules(credentials, topic, subscription)
        made = rules.put(Rule(name=name, filter=wanted, action=action), change=False)
    _tell(made, as_json, f"created rule {name} of {topic}/{subscription}")


def update(
    topic: Topic,
    subscription: Subscription,
    name: Name,
    sql: Sql = None,
    correlation: Correlation = None,
    takes_nothing: TakesNothing = False,
    action: Action = None,
    as_json: Json = False,
    connection_string: ConnectionString = None,
) -> None:
    """Change the filter or the action of a rule; '--action none' takes the action away."""
    from dataclasses import replace

    from busway.remote.management.rules import Rules

    has_filter = sql is not None or correlation or takes_nothing
    if not has_filter and action is None:
        refuse("What is to change? Give --sql, --correlation, --false or --action.")
    wanted = _filter(sql, correlation, takes_nothing) if has_filter else None
    credentials = credentials_at(connection_string)
    with ended_well(credentials):
        rules = Rules(credentials, topic, subscription)
        rule = rules.get(name)
        if wanted is not None:
            rule = replace(rule, filter=wanted)
        if action is not None:
            is_none = action.lower() == "none"
            rule = replace(rule, action=None if is_none else action, action_parameters={})
        changed = rules.put(rule, change=True)
    _tell(changed, as_json, f"changed rule {name} of {topic}/{subscription}")


def show(
    topic: Topic,
    subscription: Subscription,
    name: Name,
    as_json: Json = False,
    connection_string: ConnectionString = None,
) -> None:
    """Show a rule: its filter and its action."""
    from busway.remote.management.rules import Rules, told

    credentials = credentials_at(connection_string)
    with ended_well(credentials):
        found = told(Rules(credentials, topic, subscription).get(name))
    if as_json:
        showing.tell(found)
        return
    showing.facts(
        [
            ("rule", found["name"]),
            ("filter", found["filter"]),
            ("takes", found["text"]),
            ("action", found["action"]),
            ("created", showing.instant(found["created_at"])),
        ]
    )


def list_rules(
    topic: Topic,
    subscription: Subscription,
    as_json: Json = False,
    connection_string: ConnectionString = None,
) -> None:
    """List the rules of a subscription."""
    from busway.remote.management.rules import Rules, told

    credentials = credentials_at(connection_string)
    with ended_well(credentials):
        found = [told(each) for each in Rules(credentials, topic, subscription).all()]
    if as_json:
        showing.tell(found)
    elif found:
        rows = [[each["name"], each["filter"], each["text"], each["action"]] for each in found]
        showing.tabulate(["rule", "filter", "takes", "action"], rows)
    else:
        print("There are no rules: the subscription gets nothing. See: busway rule create --help")


def delete(
    topic: Topic,
    subscription: Subscription,
    name: Name,
    yes: Yes = False,
    as_json: Json = False,
    connection_string: ConnectionString = None,
) -> None:
    """Delete a rule. Asks first."""
    from busway.remote.management.rules import Rules

    credentials = credentials_at(connection_string)
    with ended_well(credentials):
        rules = Rules(credentials, topic, subscription)
        rules.get(name)
        showing.confirm(f"Delete rule '{name}' of {topic}/Subscriptions/{subscription}?", yes)
        rules.delete(name)
    if as_json:
        showing.tell({"deleted": name})
    else:
        print(f"deleted rule {name} of {topic}/{subscription}")


def _tell(rule: Rule, as_json: bool, text: str) -> None:
    from busway.remote.management.rules import told

    if as_json:
        showing.tell(told(rule))
    else:
        print(text)


def _filter(
    sql: str | None, correlation: list[str] | None, takes_nothing: bool = False
) -> RuleFilter:
    from busway.model.entities import CorrelationFilter, FalseFilter, SqlFilter, TrueFilter
    from busway.remote.management.rules import CONDITIONS
    from busway.remote.wire.typed_values import TypedTextError, read_pair

    if (sql is not None) + bool(correlation) + takes_nothing > 1:
        refuse("A rule has one filter: --sql, --correlation or --false.")
    if sql is not None:
        return SqlFilter(sql)
    if takes_nothing:
        return FalseFilter()
    if not correlation:
        return TrueFilter()
    system: dict[str, str] = {}
    user: dict[str, object] = {}
    for each in correlation:
        try:
            name, value = read_pair(each, "--correlation")
        except TypedTextError as error:
            refuse(str(error))
        field = LABEL.get(name, name)
        if field in CONDITIONS:
            system[field] = str(value)
        else:
            user[name] = value
    return CorrelationFilter(**system, properties=user)
