"""`/$busway/rules`: access rules of a namespace, made, renewed and removed while it serves (D-34).

A token is judged by the rules as they are when it is shown; what it has opened over AMQP stays open
until it runs out (`tests/gateway/test_access_changes.py`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError

from busway.model.entities import ROOT_RULE_NAME
from busway.testing import Server
from tests.http.asking import Reply, ask, manager, token_of

CHOSEN = "a-key-that-a-person-has-chosen"
IN_THE_FILE = "the-key-that-is-in-the-file"
CONFIG = f"""
[[access]]
name = "declared"
rights = ["Send"]
key = "{IN_THE_FILE}"

[namespaces.contoso]
"""
THEIRS = {"Host": "contoso.localhost"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("orders", config=CONFIG) as running:
        yield running


def rules(
    server: Server, method: str, name: str = "", body: object = None, *, by: str | None = None
) -> Reply:
    """`by` is the connection string whose key signs, else that of the root rule as it started."""
    path = f"/$busway/rules/{name}".rstrip("/")
    token = token_of(by or server.connection_string)
    return ask(server, method, path, body, token=token)


def made(server: Server, name: str, *rights: str, **keys: str) -> Any:
    reply = rules(server, "PUT", name, {"rights": list(rights), **keys})
    assert reply.status in (200, 201), reply.text
    return reply.json


def string_of(server: Server, name: str, key: str) -> str:
    return (
        f"Endpoint=sb://localhost:{server.port};SharedAccessKeyName={name};SharedAccessKey={key};"
        "UseDevelopmentEmulator=true;"
    )


def send(server: Server, name: str, key: str) -> int:
    token = token_of(string_of(server, name, key))
    return ask(server, "POST", "/orders/messages", "hello", token=token).status


class TestMaking:
    def test_a_rule_opens_what_it_says_at_once(self, server: Server) -> None:
        reply = rules(server, "PUT", "sender", {"rights": ["Send"]})
        assert reply.status == 201
        assert (reply.json["name"], reply.json["rights"]) == ("sender", ["Send"])
        keys = [reply.json["primary_key"], reply.json["secondary_key"]]
        assert [len(base64.b64decode(key)) for key in keys] == [32, 32]
        assert keys[0] != keys[1]
        assert [send(server, "sender", key) for key in keys] == [201, 201]
        token = token_of(string_of(server, "sender", keys[0]))
        assert ask(server, "DELETE", "/orders/messages/head?timeout=0", token=token).status == 401

    def test_the_sdk_gets_in_with_it(self, server: Server) -> None:
        key = made(server, "sdk", "Send", "Listen")["secondary_key"]
        with (
            ServiceBusClient.from_connection_string(string_of(server, "sdk", key)) as client,
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages(ServiceBusMessage("let me in"))
            rules(server, "DELETE", "sdk")
            sender.send_messages(ServiceBusMessage("what is open stays open"))
        with (
            ServiceBusClient.from_connection_string(string_of(server, "sdk", key)) as client,
            pytest.raises(ServiceBusAuthenticationError),
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages(ServiceBusMessage("and is not opened again"))

    def test_keys_can_be_chosen(self, server: Server) -> None:
        assert made(server, "chosen", "Send", primary_key=CHOSEN)["primary_key"] == CHOSEN
        assert send(server, "chosen", CHOSEN) == 201

    def test_other_rights_leave_the_keys(self, server: Server) -> None:
        before = made(server, "both", "Send", "Listen")
        reply = rules(server, "PUT", "BOTH", {"rights": ["listen"]})
        assert reply.status == 200
        assert reply.json["rights"] == ["Listen"]
        assert reply.json["primary_key"] == before["primary_key"]
        assert reply.json["secondary_key"] == before["secondary_key"]
        assert send(server, "both", before["primary_key"]) == 401

    def test_a_name_may_have_any_letters(self, server: Server) -> None:
        made(server, "eu%2Fsender%20%C3%BC", "Send")
        names = [rule["name"] for rule in rules(server, "GET").json["rules"]]
        assert "eu/sender ü" in names
        assert rules(server, "DELETE", "eu%2Fsender%20%C3%BC").status == 200

    @pytest.mark.parametrize(
        ("body", "said"),
        [
            ("{", "is not JSON"),
            ("[]", "is not an object"),
            ({"rights": ["Send"], "keys": 2}, "'keys' is not known"),
            ({}, "'rights' is no list"),
            ({"rights": "Send"}, "'rights' is no list"),
            ({"rights": []}, "some of the rights Manage, Send, Listen"),
            ({"rights": ["Write"]}, "some of the rights Manage, Send, Listen"),
            ({"rights": ["Manage"]}, "needs Send and Listen as well"),
            ({"rights": ["Send"], "primary_key": "short"}, "one word of at least 16"),
            ({"rights": ["Send"], "secondary_key": "two words of length"}, "one word of at least"),
            ({"rights": ["Send"], "primary_key": "k" * 257}, "keys of 1 to 256 characters"),
        ],
    )
    def test_one_that_cannot_be_is_refused(self, server: Server, body: object, said: str) -> None:
        reply = rules(server, "PUT", "wrong", body)
        assert reply.status == 400
        assert said in reply.text
        assert rules(server, "GET", "wrong").status == 404

    def test_lim_12_there_may_be_twelve(self) -> None:
        with Server() as server:
            replies = [
                rules(server, "PUT", f"rule-{number}", {"rights": ["Send"]}) for number in range(12)
            ]
            assert [reply.status for reply in replies] == [201] * 11 + [400]
            assert "12 may be at most" in replies[-1].text


class TestLooking:
    def test_the_list_has_no_keys(self, server: Server) -> None:
        key = made(server, "looked-at", "Listen")["primary_key"]
        reply = rules(server, "GET")
        assert reply.json["namespace"] == "busway"
        found = {rule["name"]: rule["rights"] for rule in reply.json["rules"]}
        assert found[ROOT_RULE_NAME] == ["Manage", "Send", "Listen"]
        assert found["looked-at"] == ["Listen"]
        assert key not in reply.text
        assert IN_THE_FILE not in reply.text

    def test_one_has_them_and_nobody_keeps_the_answer(self, server: Server) -> None:
        rule = made(server, "looked-at", "Listen")
        reply = rules(server, "GET", "looked-at")
        assert reply.json["primary_key"] == rule["primary_key"]
        assert reply.headers["cache-control"] == "no-store"

    def test_they_are_those_of_the_namespace_of_the_host(self, server: Server) -> None:
        theirs = token_of(server.connection_strings["contoso"])
        reply = ask(
            server, "PUT", "/$busway/rules/hers", {"rights": ["Send"]}, token=theirs, headers=THEIRS
        )
        assert reply.status == 201
        there = ask(server, "GET", "/$busway/rules", token=theirs, headers=THEIRS).json
        assert (there["namespace"], [each["name"] for each in there["rules"]]) == (
            "contoso",
            [ROOT_RULE_NAME, "hers"],
        )
        assert rules(server, "GET", "hers").status == 404
        assert (
            ask(server, "GET", "/$busway/rules", token=manager(server), headers=THEIRS).status
            == 401
        )

    def test_a_method_that_is_not_there_says_which_are(self, server: Server) -> None:
        reply = rules(server, "POST", "looked-at", {})
        assert reply.status == 405
        assert reply.headers["allow"] == "GET, PUT, DELETE"
        assert ask(server, "POST", "/$busway/rules/looked-at").status == 401


class TestRenewing:
    @pytest.mark.parametrize(
        ("which", "other"), [("primary", "secondary"), ("secondary", "primary")]
    )
    def test_one_key_is_new_and_the_other_stays(
        self, server: Server, which: str, other: str
    ) -> None:
        """So that clients move to the one while the other is made anew."""
        name = f"renewed-{which}"
        before = made(server, name, "Send")
        after = rules(server, "POST", f"{name}/renew", {"key": which}).json
        assert after[f"{other}_key"] == before[f"{other}_key"]
        assert send(server, name, before[f"{which}_key"]) == 401
        assert send(server, name, after[f"{which}_key"]) == 201
        assert send(server, name, after[f"{other}_key"]) == 201

    def test_a_rule_renews_the_key_that_signs(self, server: Server) -> None:
        before = made(server, "manager", "Manage", "Send", "Listen")
        old = string_of(server, "manager", before["primary_key"])
        reply = rules(server, "POST", "manager/renew", {"key": "primary"}, by=old)
        assert reply.status == 200
        new = string_of(server, "manager", reply.json["primary_key"])
        assert rules(server, "GET", by=old).status == 401
        assert rules(server, "GET", by=new).status == 200

    @pytest.mark.parametrize("body", [{}, {"key": "third"}, {"key": ["primary"]}, "primary"])
    def test_which_one_must_be_said(self, server: Server, body: object) -> None:
        made(server, "unclear", "Send")
        assert rules(server, "POST", "unclear/renew", body).status == 400

    def test_one_that_is_not_there_is_not_found(self, server: Server) -> None:
        reply = rules(server, "POST", "nobody/renew", {"key": "primary"})
        assert reply.status == 404
        assert "has no access rule 'nobody'" in reply.text


class TestRemoving:
    def test_it_opens_nothing_any_more(self, server: Server) -> None:
        key = made(server, "gone", "Send")["primary_key"]
        assert send(server, "gone", key) == 201
        assert rules(server, "DELETE", "gone").status == 200
        assert send(server, "gone", key) == 401
        assert rules(server, "DELETE", "gone").status == 404

    def test_a_rule_may_remove_itself(self, server: Server) -> None:
        key = made(server, "leaving", "Manage", "Send", "Listen")["primary_key"]
        own = string_of(server, "leaving", key)
        assert rules(server, "DELETE", "leaving", by=own).status == 200
        assert rules(server, "GET", by=own).status == 401

    @pytest.mark.parametrize("method", ["DELETE", "PUT"])
    def test_the_root_rule_stays_as_it_is(self, server: Server, method: str) -> None:
        """It is the last that may manage, whatever becomes of others."""
        reply = rules(server, method, ROOT_RULE_NAME, {"rights": ["Send"]})
        assert reply.status == 409
        assert rules(server, "GET").status == 200


class TestTheRootRule:
    def test_its_keys_are_renewed_and_kept(self, tmp_path: Path) -> None:
        with Server("orders", data=tmp_path / "data") as server:
            old = server.connection_string
            second = rules(server, "POST", f"{ROOT_RULE_NAME}/renew", {"key": "secondary"}).json
            with_second = string_of(server, ROOT_RULE_NAME, second["secondary_key"])
            first = rules(
                server, "POST", f"{ROOT_RULE_NAME}/renew", {"key": "primary"}, by=with_second
            ).json
            assert rules(server, "GET", by=old).status == 401
            server.kill()
            server.restart()
            assert server.connection_string != old
            assert first["primary_key"] in server.connection_string
            assert rules(server, "GET").status == 200
            assert rules(server, "GET", by=with_second).status == 200
            assert rules(server, "GET", by=old).status == 401
            assert (tmp_path / "data" / "root.key").stat().st_mode & 0o077 == 0

    def test_a_key_that_is_a_setting_is_changed_there(self) -> None:
        with Server(arguments=["--key", CHOSEN]) as server:
            reply = rules(server, "POST", f"{ROOT_RULE_NAME}/renew", {"key": "primary"})
            assert reply.status == 409
            assert "--key" in reply.text
            assert rules(server, "GET").status == 200

    def test_without_a_data_folder_it_lasts_as_long_as_the_server(self) -> None:
        with Server() as server:
            old = server.connection_string
            new = rules(server, "POST", f"{ROOT_RULE_NAME}/renew", {"key": "primary"}).json
            own = string_of(server, ROOT_RULE_NAME, new["primary_key"])
            assert rules(server, "GET", by=own).status == 200
            assert rules(server, "GET", by=old).status == 401


class TestAfterARestart:
    """Who spoke last is right: this page, or a file that says something else than before."""

    @pytest.fixture
    def kept(self, tmp_path: Path) -> Iterator[Server]:
        with Server("orders", config=CONFIG, data=tmp_path / "data") as server:
            yield server

    def test_what_was_made_is_there_and_what_was_removed_is_not(self, kept: Server) -> None:
        stays, goes = made(kept, "stays", "Send"), made(kept, "goes", "Send")
        rules(kept, "DELETE", "goes")
        kept.kill()
        kept.restart()
        assert send(kept, "stays", stays["secondary_key"]) == 201
        assert send(kept, "goes", goes["primary_key"]) == 401

    def test_a_renewed_key_is_not_the_one_of_the_file_again(self, kept: Server) -> None:
        assert send(kept, "declared", IN_THE_FILE) == 201
        new = rules(kept, "POST", "declared/renew", {"key": "primary"}).json["primary_key"]
        kept.kill()
        kept.restart()
        assert send(kept, "declared", IN_THE_FILE) == 401
        assert send(kept, "declared", new) == 201

    def test_a_removed_rule_is_not_that_of_the_file_again(self, kept: Server) -> None:
        assert rules(kept, "DELETE", "declared").status == 200
        kept.kill()
        kept.restart()
        assert send(kept, "declared", IN_THE_FILE) == 401

    def test_a_file_that_says_something_new_is_right(self, tmp_path: Path) -> None:
        other = "another-key-that-is-in-the-file"
        data = tmp_path / "data"
        with Server("orders", config=CONFIG, data=data) as server:
            new = rules(server, "POST", "declared/renew", {"key": "primary"}).json["primary_key"]
        with Server("orders", config=CONFIG.replace(IN_THE_FILE, other), data=data) as server:
            assert send(server, "declared", other) == 201
            assert send(server, "declared", new) == 401
            assert rules(server, "DELETE", "declared").status == 200
        with Server("orders", config=CONFIG, data=data) as server:
            assert send(server, "declared", IN_THE_FILE) == 201
