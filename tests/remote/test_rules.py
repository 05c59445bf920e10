"""`busway rules`, as somebody at a terminal uses it (D-34)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway.model.entities import ROOT_RULE_NAME
from busway.testing import Server
from tests.http.asking import ask, token_of
from tests.remote.test_commands import run

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "change-keys.md"
CONFIG = '[namespaces.contoso]\nhosts = ["127.0.0.2"]\n'


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("orders", config=CONFIG, arguments=["--host", "0.0.0.0"]) as running:
        yield running


def said(server: Server, *arguments: str, by: str | None = None) -> str:
    done = run(server, "rules", *arguments, connection_string=by)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def listed(server: Server) -> dict[str, str]:
    """Rights by rule, as they are shown."""
    head, *rows = said(server).splitlines()
    assert head.split() == ["rule", "rights", "changed"]
    return {row.split()[0]: " ".join(row.split()[1:-1]) for row in rows}


def opens(server: Server, connection_string: str) -> bool:
    reply = ask(
        server, "POST", "/orders/messages", "hello", token=token_of(connection_string, "orders")
    )
    return reply.status == 201


def test_they_are_shown_with_their_rights(server: Server) -> None:
    assert listed(server)[ROOT_RULE_NAME] == "Manage, Send, Listen"
    assert json.loads(said(server, "--json"))["namespace"] == "busway"


def test_a_new_one_is_a_connection_string_for_the_sdk(server: Server) -> None:
    text = said(server, "add", "web", "--send")
    assert listed(server)["web"] == "Send"
    with (
        ServiceBusClient.from_connection_string(text) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("let me in"))


@pytest.mark.parametrize(
    ("flags", "rights"),
    [
        (["--listen"], "Listen"),
        (["--send", "--listen"], "Send, Listen"),
        (["--manage"], "Manage, Send, Listen"),
    ],
)
def test_it_may_do_what_was_said(server: Server, flags: list[str], rights: str) -> None:
    name = "-".join(["may", *(flag.strip("-") for flag in flags)])
    said(server, "add", name, *flags)
    assert listed(server)[name] == rights


def test_one_that_is_there_is_changed_only_on_purpose(server: Server) -> None:
    text = said(server, "add", "twice", "--send")
    again = run(server, "rules", "add", "Twice", "--listen")
    assert (again.returncode, again.stdout) == (1, "")
    assert "There is a rule 'Twice' already" in again.stderr
    assert opens(server, text)
    assert said(server, "add", "twice", "--listen", "--replace") == text
    assert not opens(server, text)


def test_a_key_is_renewed_while_the_other_is_in_use(server: Server) -> None:
    """As the help tells those whose clients must not notice."""
    said(server, "add", "moved", "--send")
    primary, secondary = said(server, "show", "moved").splitlines()
    second = said(server, "renew", "moved", "secondary")
    assert (opens(server, primary), opens(server, secondary)) == (True, False)
    first = said(server, "renew", "moved", "primary")
    assert (opens(server, primary), opens(server, second), opens(server, first)) == (
        False,
        True,
        True,
    )
    assert said(server, "show", "moved").splitlines() == [first, second]


def test_a_rule_renews_its_own_key(server: Server) -> None:
    own = said(server, "add", "own", "--manage")
    new = said(server, "renew", "own", "primary", by=own)
    assert run(server, "rules", connection_string=own).returncode == 4
    said(server, by=new)


def test_a_removed_one_opens_nothing(server: Server) -> None:
    text = said(server, "add", "gone soon", "--send")
    assert opens(server, text)
    assert said(server, "remove", "gone soon") == ""
    assert not opens(server, text)
    again = run(server, "rules", "remove", "gone soon")
    assert (again.returncode, again.stderr) == (
        5,
        "busway: The namespace 'busway' has no access rule 'gone soon'.\n",
    )


def test_the_root_rule_stays(server: Server) -> None:
    refused = run(server, "rules", "remove", ROOT_RULE_NAME)
    assert refused.returncode == 1
    assert "cannot be removed" in refused.stderr


def test_they_are_those_of_the_namespace_of_the_connection_string(server: Server) -> None:
    theirs = server.connection_strings["contoso"]
    text = said(server, "add", "hers", "--send", by=theirs)
    assert "Endpoint=sb://127.0.0.2:" in text
    assert json.loads(said(server, "--json", by=theirs))["namespace"] == "contoso"
    assert "hers" not in listed(server)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["add", "x"], "What may it do?"),
        (["renew", "x", "third"], "must be one of primary, secondary"),
    ],
)
def test_what_cannot_be_is_said_without_asking(arguments: list[str], text: str) -> None:
    done = run(None, "rules", *arguments)
    assert done.returncode == 2
    assert text in done.stderr


def test_who_may_not_manage_is_told(server: Server) -> None:
    text = said(server, "add", "just-sends", "--send")
    done = run(server, "rules", connection_string=text)
    assert done.returncode == 4
    assert "that rule may not manage" in done.stderr


def test_the_how_to_is_done_as_it_says() -> None:
    lines = re.findall(r"^busway rules ?(.*?)(?:  +#.*)?$", PAGE.read_text(), re.MULTILINE)
    assert len(lines) == 8
    with Server("orders") as server:
        by = server.connection_string
        for line in lines:
            printed = said(server, *line.split(), by=by)
            if line == f"renew {ROOT_RULE_NAME} primary":
                by = printed
        assert "billing" in said(server, by=by)
        assert "shop" not in said(server, by=by)
