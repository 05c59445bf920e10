"""Access rules of entities, and the tokens that management asks for (http.md 3 and 6, D-34)."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest

from busway.gateway.auth import sign
from busway.testing import Server
from tests.http.atom_client import INSTANCE, ROOT, Management, Reply, description, service, token

KEY = base64.b64encode(b"k" * 32).decode()


def rule(name: str, *rights: str, primary: str = "", secondary: str = "") -> str:
    keys = "".join(
        f"<{which}>{key}</{which}>"
        for which, key in (("PrimaryKey", primary), ("SecondaryKey", secondary))
        if key
    )
    written = "".join(f"<AccessRights>{right}</AccessRights>" for right in rights)
    return (
        '<AuthorizationRule i:type="SharedAccessAuthorizationRule">'
        "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>"
        f"<Rights>{written}</Rights><KeyName>{name}</KeyName>{keys}</AuthorizationRule>"
    )


def rules(*each: str) -> str:
    return f"<AuthorizationRules>{''.join(each)}</AuthorizationRules>"


def shown(reply: Reply) -> list[dict[str, str | None]]:
    parent = reply.content.find(service("AuthorizationRules"))
    assert parent is not None
    return [{child.tag.rpartition("}")[2]: child.text for child in each} for each in parent]


class TestAccessRules:
    def test_come_back_with_all_of_their_elements(self, bus: Management) -> None:
        body = rules(rule("mine", "Listen", "Send", primary=KEY))
        for kind in ("Queue", "Topic"):
            made = bus.create(kind, f"/ruled-{kind}", body)
            (found,) = shown(made)
            assert list(found) == [
                "ClaimType",
                "ClaimValue",
                "Rights",
                "CreatedTime",
                "ModifiedTime",
                "KeyName",
                "PrimaryKey",
                "SecondaryKey",
            ]
            assert (found["ClaimType"], found["ClaimValue"]) == ("SharedAccessKey", "None")
            assert (found["KeyName"], found["PrimaryKey"]) == ("mine", KEY)
            rights = made.content.findall(f".//{service('AccessRights')}")
            assert [right.text for right in rights] == ["Send", "Listen"]
            typed = made.content.find(f".//{service('AuthorizationRule')}")
            assert typed is not None
            assert typed.get(f"{{{INSTANCE}}}type") == "SharedAccessAuthorizationRule"
            assert shown(bus.get(f"/ruled-{kind}")) == [found]

    def test_get_the_keys_that_are_left_out(self, bus: Management) -> None:
        (found,) = shown(bus.create("Queue", "/keyless", rules(rule("mine", "Send"))))
        keys = [found["PrimaryKey"] or "", found["SecondaryKey"] or ""]
        assert [len(base64.b64decode(key, validate=True)) for key in keys] == [32, 32]
        assert keys[0] != keys[1]

    def test_get_new_keys_by_an_update(self, bus: Management) -> None:
        bus.create("Queue", "/rolled", rules(rule("mine", "Send", primary="old")))
        path = "/rolled/messages"
        assert bus.request("POST", path, b"x", authorization=self.own(bus, "old")).status == 201
        body = description("Queue", rules(rule("mine", "Send", primary="new")))
        (found,) = shown(bus.update("/rolled", body))
        assert found["PrimaryKey"] == "new"
        assert bus.request("POST", path, b"x", authorization=self.own(bus, "old")).status == 401
        assert bus.request("POST", path, b"x", authorization=self.own(bus, "new")).status == 201

    def own(self, bus: Management, key: str) -> str:
        return token(f"sb://{bus.authority}/rolled", key, rule="mine")

    def test_keep_their_times_while_they_stay_the_same(self, bus: Management) -> None:
        body = rules(rule("a", "Send", primary="1", secondary="2"))
        (first,) = shown(bus.create("Queue", "/timed", body))
        assert shown(bus.update("/timed", description("Queue", body))) == [first]
        body = rules(rule("a", "Listen", primary="1", secondary="2"))
        (changed,) = shown(bus.update("/timed", description("Queue", body)))
        assert changed["CreatedTime"] == first["CreatedTime"]
        assert (changed["ModifiedTime"] or "") >= (first["ModifiedTime"] or "")

    def test_go_with_an_update_that_has_none(self, bus: Management) -> None:
        bus.create("Queue", "/cleared", rules(rule("mine", "Send")))
        assert shown(bus.update("/cleared", description("Queue"))) == []

    @pytest.mark.parametrize(
        ("said", "reason"),
        [
            ([rule(f"r{n}", "Send") for n in range(13)], "13 access rules, and 12 may be at most"),
            ([rule("m", "Manage", "Send")], "Manage, which needs Send and Listen"),
            ([rule("m")], "some of the rights"),
            ([rule("m", "Fly")], "some of the rights"),
            ([rule("", "Send")], "a name of 1 to 256"),
            ([rule("m", "Send"), rule("M", "Listen")], "two access rules"),
            ([rule("m", "Send", primary="x" * 257)], "keys of 1 to 256"),
            ([rule("m", "Send").replace("SharedAccessKey<", "Other<")], "must be SharedAccessKey"),
        ],
    )
    def test_that_cannot_be_are_refused(
        self, bus: Management, said: list[str], reason: str
    ) -> None:
        """LIM-12, amqp.md 18."""
        reply = bus.put("/unruly", description("Queue", rules(*said)))
        assert reply.status == 400
        assert reason in reply.detail
        assert bus.get("/unruly").status == 404


class TestTokens:
    @pytest.mark.parametrize("part", ["", ":5300", "/", "/own", "/OWN/"])
    @pytest.mark.parametrize("scheme", ["sb", "https", "http", "amqps"])
    def test_cover_what_is_below(self, bus: Management, scheme: str, part: str) -> None:
        bus.put("/own", description("Queue"))
        host = bus.authority.partition(":")[0]
        own = token(f"{scheme}://{host}{part}", bus.key)
        assert bus.get("/own", authorization=own).status == 200

    def test_do_not_cover_what_is_beside(self, bus: Management) -> None:
        bus.put("/own-two", description("Queue"))
        own = token(f"sb://{bus.authority}/own", bus.key)
        for path in ("/own-two", "/$Resources/queues", "/$namespaceinfo"):
            reply = bus.get(path, authorization=own)
            assert reply.status == 401
            assert "InvalidAudience" in reply.detail

    def test_of_javascript_are_for_the_very_request(self, bus: Management) -> None:
        """Its whole address with the query, in lower case and encoded so."""
        bus.put("/Mixed", description("Queue"))
        resource = quote(f"https://{bus.authority}/Mixed?api-version=2021-05", safe="").lower()
        expiry = "9999999999"
        signature = quote(sign(resource, expiry, bus.key), safe="")
        own = f"SharedAccessSignature sig={signature}&se={expiry}&skn={ROOT}&sr={resource}"
        assert bus.get("/Mixed", authorization=own).status == 200

    def test_need_the_right_to_manage(self, bus: Management) -> None:
        everything = rule("boss", "Manage", "Send", "Listen", primary=KEY)
        little = rule("worker", "Send", "Listen", primary=KEY)
        bus.create("Queue", "/workplace", rules(everything, little))
        audience = f"sb://{bus.authority}/workplace"
        assert bus.get("/workplace", authorization=token(audience, KEY, "boss")).status == 200
        reply = bus.get("/workplace", authorization=token(audience, KEY, "worker"))
        assert reply.status == 401
        assert "'Manage' claim(s) are required" in reply.detail

    def test_of_an_entitys_rule_open_nothing_else(self, bus: Management) -> None:
        """D-34: whatever `sr` says."""
        bus.create("Topic", "/mine", rules(rule("boss", "Manage", "Send", "Listen", primary=KEY)))
        bus.create("Queue", "/mine/not")
        own = token(f"sb://{bus.authority}", KEY, "boss")
        assert bus.get("/mine", authorization=own).status == 200
        assert (
            bus.put("/mine/Subscriptions/s", description("Subscription"), authorization=own).status
            == 201
        )
        assert bus.get("/mine/not", authorization=own).status == 401
        assert bus.get("/$Resources/queues", authorization=own).status == 401

    def test_that_are_over_are_refused(self, bus: Management) -> None:
        reply = bus.get("/x", authorization=token(f"sb://{bus.authority}", bus.key, lasts_s=-1))
        assert reply.status == 401
        assert "ExpiredToken" in reply.detail


class TestForwardTokens:
    """http.md 3: three ways to sign, and none of them is kept."""

    @pytest.fixture
    def limited(self, bus: Management) -> str:
        """A token that may manage one queue only, and so cannot name a destination by itself."""
        bus.put(
            "/limited",
            description("Queue", rules(rule("boss", "Manage", "Send", "Listen", primary=KEY))),
        )
        bus.put("/destination", description("Queue"))
        return token(f"sb://{bus.authority}/limited", KEY, "boss")

    def body(self) -> bytes:
        inner = rules(rule("boss", "Manage", "Send", "Listen", primary=KEY))
        return description(
            "Queue", inner, ForwardTo="destination", ForwardDeadLetteredMessagesTo="destination"
        )

    def update(self, bus: Management, limited: str, *tokens: str) -> Reply:
        names = ("ServiceBusSupplementaryAuthorization", "ServiceBusDlqSupplementaryAuthorization")
        headers = dict(zip(names, tokens, strict=False))
        return bus.update("/limited", self.body(), headers=headers, authorization=limited)

    @pytest.mark.parametrize("style", ["sb://{host}/destination", "{host}", "https://{host}"])
    def test_open_the_destination(self, bus: Management, limited: str, style: str) -> None:
        extra = token(style.format(host=bus.authority), bus.key)
        assert self.update(bus, limited, extra, extra).status == 200
        bus.delete("/limited")

    def test_without_one_the_request_must_be_able_to(self, bus: Management, limited: str) -> None:
        refused = self.update(bus, limited)
        assert refused.status == 401
        assert bus.get("/limited").text("ForwardTo") is None
        assert bus.update("/limited", self.body()).status == 200
        assert self.update(bus, limited).status == 200  # what stays needs no new token
        bus.delete("/limited")

    @pytest.mark.parametrize(
        "wrong", ["nonsense", "Bearer x", token("sb://x/elsewhere", "the-wrong-key")]
    )
    def test_that_is_no_good_is_refused(self, bus: Management, limited: str, wrong: str) -> None:
        assert self.update(bus, limited, wrong).status == 401

    def test_needs_no_more_than_send(self, bus: Management, limited: str) -> None:
        open_to = description(
            "Queue", rules(rule("in", "Send", primary=KEY), rule("out", "Listen", primary=KEY))
        )
        bus.update("/destination", open_to)
        audience = f"sb://{bus.authority}/destination"
        listen = token(audience, KEY, "out")
        refused = self.update(bus, limited, listen, listen)
        assert refused.status == 401
        assert "'Send' claim(s) are required" in refused.detail
        send = token(audience, KEY, "in")
        assert self.update(bus, limited, send, send).status == 200
        bus.delete("/limited")


def test_no_key_and_no_token_is_in_the_log(bus: Management, managed: Server) -> None:
    body = description("Queue", rules(rule("logged", "Send", primary="a-key-to-look-for")))
    assert bus.put("/logged", body).status == 201
    extra = {"ServiceBusSupplementaryAuthorization": "a-token-to-look-for"}
    assert (
        bus.update("/logged", description("Queue", ForwardTo="logged"), headers=extra).status == 401
    )
    assert "to-look-for" not in managed.log
    assert bus.key not in managed.log
