"""Bearer tokens: what opens, and all that must not."""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from busway.amqp.link import LinkRole
from busway.amqp.performatives import Source as LinkSource
from busway.gateway.auth import Access, Right
from busway.gateway.bearer import KeysAwaited
from busway.gateway.bearer.dev_issuer import DevIssuer
from busway.gateway.bearer.keys import KeySetError, parse_key_set
from busway.gateway.bearer.verifier import BearerTokens
from busway.model.errors import BusError
from busway.model.identity import AUDIENCE, DEV_ASSIGNMENTS, DEV_ISSUER, Role, RoleAssignment
from tests.gateway.issuers import ISSUER, Source, by_hand, jwk, rsa_key, token
from tests.gateway.world import HOST, World

CLOCK_MS = 1_800_000_000_000


def own_host(name: str) -> bool:
    return name in (HOST, "localhost")


def role(role: Role, value: str = "shop", claim: str = "app", **options: Any) -> RoleAssignment:
    return RoleAssignment(role=role, claim=claim, value=value, issuer=ISSUER, **options)


def verified(
    text: str,
    audience: str = "",
    *,
    source: Source | None = None,
    roles: Sequence[RoleAssignment] = (role(Role.OWNER),),
    clock_ms: int = CLOCK_MS,
) -> Sequence[Access]:
    tokens = BearerTokens([source or Source("first")], roles)
    return tokens.verify(text, audience, clock_ms, own_host)


def refusal(text: str, audience: str = "", **options: Any) -> str:
    with pytest.raises(BusError) as refused:
        verified(text, audience, **options)
    assert refused.value.kind.status == 401
    return refused.value.text


def opens(opened: Sequence[Access], path: str, right: Right, entity: str | None = None) -> bool:
    return any(access.allows(path, right, CLOCK_MS, entity) for access in opened)


class TestGoodTokens:
    def test_an_owner_may_do_everything(self) -> None:
        opened = verified(token(CLOCK_MS))
        for right in (Right.SEND, Right.LISTEN, Right.MANAGE):
            assert opens(opened, "orders", right)

    @pytest.mark.parametrize(
        ("given_role", "may", "may_not"),
        [(Role.SENDER, Right.SEND, Right.LISTEN), (Role.RECEIVER, Right.LISTEN, Right.SEND)],
    )
    def test_others_may_do_one_thing(self, given_role: Role, may: Right, may_not: Right) -> None:
        opened = verified(token(CLOCK_MS), "orders", roles=[role(given_role)])
        assert opens(opened, "orders", may)
        assert not opens(opened, "orders", may_not)
        assert not opens(opened, "orders", Right.MANAGE)

    def test_roles_add_up(self) -> None:
        opened = verified(token(CLOCK_MS), "q", roles=[role(Role.SENDER), role(Role.RECEIVER)])
        assert opens(opened, "q", Right.SEND)
        assert opens(opened, "q", Right.LISTEN)

    @pytest.mark.parametrize(
        ("claim", "value", "claims"),
        [
            ("app", "shop", {}),
            ("app", "shop-v2", {"appid": None, "azp": "shop-v2"}),
            ("object", "o-1", {"oid": "o-1"}),
            ("subject", "subject-of-shop", {}),
            ("group", "g-2", {"groups": ["g-1", "g-2"]}),
            ("token_role", "Bus.Send", {"roles": ["Bus.Send"]}),
            ("token_scope", "bus.send", {"scp": "openid bus.send"}),
        ],
    )
    def test_an_identity_is_known_by_its_claims(
        self, claim: str, value: str, claims: dict[str, Any]
    ) -> None:
        wanted = [role(Role.SENDER, value, claim)]
        assert verified(token(CLOCK_MS, **claims), "orders", roles=wanted)
        assert "has no role" in refusal(
            token(CLOCK_MS, **claims), "orders", roles=[role(Role.SENDER, "another", claim)]
        )

    @pytest.mark.parametrize(
        "audience",
        [AUDIENCE, f"{AUDIENCE}/", f"https://{HOST}", f"sb://{HOST}/", ["api://x", AUDIENCE]],
    )
    def test_it_is_for_the_service_or_for_this_namespace(self, audience: object) -> None:
        assert verified(token(CLOCK_MS, aud=audience), "orders")

    def test_a_token_for_one_entity_opens_that_one(self) -> None:
        text = token(CLOCK_MS, aud=f"sb://{HOST}/orders")
        assert verified(text, "orders")
        assert "InvalidAudience" in refusal(text, "bills")

    def test_it_ends_when_it_says_and_clocks_may_differ_a_little(self) -> None:
        text = token(CLOCK_MS, exp=CLOCK_MS // 1000)
        (access,) = verified(text, "orders", clock_ms=CLOCK_MS + 59_000)
        assert access.expires_ms == CLOCK_MS + 60_000
        assert "ExpiredToken" in refusal(text, clock_ms=CLOCK_MS + 60_000)

    def test_an_elliptic_key_does_as_well(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        source = Source(algorithms=("ES256",))
        listed = {**json.loads(ECAlgorithm.to_jwk(key.public_key())), "kid": "curve"}
        source.keys, source.problem = parse_key_set(json.dumps({"keys": [listed]}).encode()), None
        claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": CLOCK_MS // 1000 + 60, "appid": "shop"}
        assert verified(jwt.encode(claims, key, "ES256", headers={"kid": "curve"}), source=source)


class TestPlaces:
    def test_a_role_in_an_entity_opens_nothing_beside_it(self) -> None:
        roles = [role(Role.OWNER, entities=("orders",))]
        opened = verified(token(CLOCK_MS), "orders", roles=roles)
        assert opens(opened, "orders", Right.MANAGE, "orders")
        assert not opens(opened, "bills", Right.SEND)
        assert "has no role for 'bills'" in refusal(token(CLOCK_MS), "bills", roles=roles)

    def test_an_entity_whose_name_begins_so_is_another_one(self) -> None:
        """A queue may be called `orders/late`."""
        roles = [role(Role.SENDER, entities=("orders",))]
        assert "has no role" in refusal(token(CLOCK_MS), "orders/late", roles=roles)
        opened = verified(token(CLOCK_MS), "orders", roles=roles)
        assert not opens(opened, "orders/late", Right.SEND, "orders/late")

    def test_a_token_for_the_whole_namespace_opens_the_entities_of_its_roles(self) -> None:
        roles = [
            role(Role.SENDER, entities=("orders",)),
            role(Role.RECEIVER, entities=("events/Subscriptions/audit",)),
        ]
        opened = verified(token(CLOCK_MS), "", roles=roles)
        assert opens(opened, "orders", Right.SEND, "orders")
        assert opens(opened, "events/Subscriptions/audit", Right.LISTEN, "events")
        assert not opens(opened, "events/Subscriptions/other", Right.LISTEN, "events")
        assert not opens(opened, "", Right.SEND)

    def test_dead_letters_and_management_belong_to_their_entity(self) -> None:
        roles = [role(Role.RECEIVER, entities=("orders",))]
        opened = verified(token(CLOCK_MS), "orders/$deadletterqueue", roles=roles)
        assert opens(opened, "orders/$DeadLetterQueue", Right.LISTEN, "orders")

    def test_a_role_at_another_issuer_is_nobodys(self) -> None:
        other = RoleAssignment(role=Role.OWNER, claim="app", value="shop", issuer="https://other/")
        assert "has no role" in refusal(token(CLOCK_MS), roles=[other])


class TestHostileTokens:
    def claims(self, **others: Any) -> dict[str, Any]:
        usual = {"iss": ISSUER, "aud": AUDIENCE, "exp": CLOCK_MS // 1000 + 3600, "appid": "shop"}
        return usual | others

    @pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", "", None])
    def test_unsigned(self, name: str | None) -> None:
        text = by_hand({"alg": name, "kid": "first"}, self.claims())
        assert "algorithm" in refusal(text) or "no JSON Web Token" in refusal(text)

    @pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
    def test_signed_with_the_public_key_as_a_secret(self, algorithm: str) -> None:
        secret = (
            rsa_key("first")
            .public_key()
            .public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        header = {"alg": algorithm, "kid": "first", "typ": "JWT"}
        signed = by_hand(header, self.claims()).rpartition(".")[0]
        digest = hmac.digest(secret, signed.encode(), algorithm.replace("HS", "sha"))
        text = by_hand(header, self.claims(), digest)
        assert f"its algorithm is '{algorithm}'" in refusal(text)

    def test_an_algorithm_that_is_not_allowed(self) -> None:
        assert "its algorithm is 'PS256'" in refusal(token(CLOCK_MS, algorithm="PS256"))

    def test_an_algorithm_that_the_key_is_not_for(self) -> None:
        source = Source("first", algorithms=("ES256", "RS256"))
        text = by_hand({"alg": "ES256", "kid": "first"}, self.claims(), b"s" * 64)
        assert "its key is not one for the algorithm ES256" in refusal(text, source=source)

    def test_signed_by_somebody_else(self) -> None:
        forged = token(CLOCK_MS, "second", header={"kid": "first"})
        assert "InvalidSignature" in refusal(forged)

    def test_changed_after_it_was_signed(self) -> None:
        header, _, signature = token(CLOCK_MS).split(".")
        claims = by_hand({}, self.claims(appid="boss")).split(".")[1]
        assert "InvalidSignature" in refusal(f"{header}.{claims}.{signature}")

    def test_a_key_in_the_token_itself_is_not_used(self) -> None:
        own = {"jwk": jwk("second"), "kid": "second", "jku": "https://evil.example/keys"}
        text = token(CLOCK_MS, "second", header=own)
        source = Source("first")
        source.can_refresh = False
        assert "its key 'second' is not one of its issuer's" in refusal(text, source=source)

    @pytest.mark.parametrize(
        ("claims", "text"),
        [
            ({"aud": "https://storage.azure.com/"}, "InvalidAudience"),
            ({"aud": None}, "InvalidAudience: The token is for 'nobody'"),
            ({"aud": 7}, "InvalidAudience"),
            ({"aud": [{}]}, "InvalidAudience"),
            ({"aud": "https://other.example"}, "InvalidAudience"),
            ({"aud": HOST}, "InvalidAudience"),
            ({"iss": "https://sts.example/other/"}, "is not trusted here"),
            ({"iss": ISSUER.rstrip("/")}, "is not trusted here"),
            ({"iss": None}, "no issuer"),
            ({"iss": ["a"]}, "no issuer"),
            ({"exp": CLOCK_MS // 1000 - 61}, "ExpiredToken"),
            ({"exp": None}, "its 'exp' is no time"),
            ({"exp": "9999999999"}, "its 'exp' is no time"),
            ({"exp": True}, "its 'exp' is no time"),
            ({"exp": 10**30}, "its 'exp' is no time"),
            ({"exp": -1}, "its 'exp' is no time"),
            ({"exp": float("nan")}, "its 'exp' is no time"),
            ({"exp": float("inf")}, "its 'exp' is no time"),
            ({"nbf": CLOCK_MS // 1000 + 61}, "it is not valid before"),
            ({"nbf": "soon"}, "its 'nbf' is no time"),
            ({"appid": "another"}, "has no role"),
            ({"appid": None}, "has no role"),
            ({"appid": {"shop": 1}}, "has no role"),
        ],
    )
    def test_claims_that_are_not_right(self, claims: dict[str, Any], text: str) -> None:
        assert text in refusal(token(CLOCK_MS, **claims))

    def test_a_demand_that_is_not_known(self) -> None:
        text = token(CLOCK_MS, header={"crit": ["exp"], "exp": 0})
        assert "crit" in refusal(text) or "no JSON Web Token" in refusal(text)

    def test_a_huge_one(self) -> None:
        assert "longer than 16384 characters" in refusal(token(CLOCK_MS, filler="x" * 20_000))
        assert verified(token(CLOCK_MS, groups=["g" * 36] * 200))

    @pytest.mark.parametrize(
        "text",
        ["..", "a.b.c", "\N{SNOWMAN}.a.b", "eyJ.eyJ.x", "[].[].x", f"{'e30.' * 2}", "." * 100],
    )
    def test_what_is_none_at_all(self, text: str) -> None:
        refusal(text)

    def test_one_that_is_nested_deeply(self) -> None:
        deep = by_hand({"alg": "RS256"}, {}).split(".")[0] + "." + "W1tb" * 3_000 + ".x"
        refusal(deep)

    @given(st.text(alphabet='eyJ01abc.=_-[]{}"', max_size=60))
    def test_every_text_is_refused_with_a_word(self, text: str) -> None:
        refusal(text)


class TestKeys:
    def test_one_that_was_withdrawn_opens_no_more(self) -> None:
        source = Source("first")
        text = token(CLOCK_MS)
        assert verified(text, source=source)
        source.answer("second")
        assert "its key 'first' is not one of its issuer's" in refusal(text, source=source)

    def test_an_unknown_one_is_asked_for_once(self) -> None:
        source = Source("first")
        tokens = BearerTokens([source], [role(Role.OWNER)])
        text = token(CLOCK_MS, "second")
        with pytest.raises(KeysAwaited) as awaited:
            tokens.verify(text, "", CLOCK_MS, own_host, may_wait=True)
        told: list[str] = []
        awaited.value.then(lambda: told.append("now"))
        assert told == []
        source.answer("first", "second")
        assert told == ["now"]
        assert tokens.verify(text, "", CLOCK_MS, own_host)

    def test_without_any_the_reason_is_told(self) -> None:
        source = Source()
        source.can_refresh = False
        assert "are not there: nobody answers" in refusal(token(CLOCK_MS), source=source)

    def test_a_token_without_a_key_id_is_of_the_only_key(self) -> None:
        text = token(CLOCK_MS, header={"kid": None})
        assert verified(text)
        source = Source("first", "second")
        source.can_refresh = False
        assert "is not one of its issuer's" in refusal(text, source=source)

    def test_what_cannot_verify_is_left_out_of_a_set(self) -> None:
        small = rsa.generate_private_key(public_exponent=65537, key_size=1024)
        weak = json.loads(RSAAlgorithm.to_jwk(small.public_key()))
        listed = [
            {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
            jwk("first", use="enc", kid="for-encryption"),
            {**weak, "kid": "weak"},
            {"kty": "RSA", "n": "?", "e": "AQAB", "kid": "broken"},
            {"kty": "RSA", "kid": "empty"},
            jwk("first", key_ops=7),
            jwk("first", key_ops=["encrypt"]),
            "no key",
            jwk("first"),
        ]
        found = parse_key_set(json.dumps({"keys": listed}).encode())
        assert [key.kid for key in found.keys] == ["first"]

    @pytest.mark.parametrize(
        "data", [b"", b"[]", b"{}", b'{"keys": {}}', b'{"keys": []}', b"\xff", b"[" * 100_000]
    )
    def test_what_is_no_set_is_refused(self, data: bytes) -> None:
        with pytest.raises(KeySetError):
            parse_key_set(data)

    def test_a_private_part_is_not_kept(self) -> None:
        private = json.loads(RSAAlgorithm.to_jwk(rsa_key("first")))
        careless = {**private, "kid": "k", "key_ops": ["sign", "verify"]}
        found = parse_key_set(json.dumps({"keys": [careless]}).encode())
        assert isinstance(found.keys[0].key, rsa.RSAPublicKey)


class TestDevIssuer:
    def issuer(self, *assignments: RoleAssignment) -> tuple[DevIssuer, BearerTokens]:
        issuer = DevIssuer(rsa_key("dev"), assignments, lambda count: b"r" * count)
        return issuer, BearerTokens([issuer], [*assignments, *DEV_ASSIGNMENTS])

    def test_its_tokens_open_everything(self) -> None:
        issuer, tokens = self.issuer()
        text = issuer.issue(f"{AUDIENCE}/", None, CLOCK_MS, own_host).text
        opened = tokens.verify(text, "orders", CLOCK_MS, own_host)
        assert opens(opened, "orders", Right.MANAGE)

    def test_an_application_with_roles_has_these_only(self) -> None:
        sender = RoleAssignment(role=Role.SENDER, claim="app", value="shop", issuer=DEV_ISSUER)
        issuer, tokens = self.issuer(sender)
        text = issuer.issue(AUDIENCE, "shop", CLOCK_MS, own_host).text
        opened = tokens.verify(text, "orders", CLOCK_MS, own_host)
        assert opens(opened, "orders", Right.SEND)
        assert not opens(opened, "orders", Right.LISTEN)

    def test_it_gives_none_for_other_services(self) -> None:
        issuer, _ = self.issuer()
        with pytest.raises(BusError, match="tokens for"):
            issuer.issue("https://vault.azure.net", None, CLOCK_MS, own_host)

    def test_those_of_another_broker_are_worth_nothing(self) -> None:
        issuer, _ = self.issuer()
        other = DevIssuer(rsa_key("other-dev"), (), lambda count: b"r" * count)
        tokens = BearerTokens([other], DEV_ASSIGNMENTS)
        text = issuer.issue(AUDIENCE, None, CLOCK_MS, own_host).text
        with pytest.raises(BusError, match="is not one of its issuer's"):
            tokens.verify(text, "", CLOCK_MS, own_host)


class TestOverCbs:
    @pytest.fixture
    def source(self, world: World) -> Source:
        world.queue("orders")
        world.queue("bills")
        source = Source("first")
        roles = [role(Role.SENDER, entities=("orders",)), role(Role.RECEIVER, "desk")]
        world.gateway.bearer = BearerTokens([source], roles)
        return source

    def test_a_role_decides_which_links_there_can_be(self, world: World, source: Source) -> None:
        client = world.connect(token=False)
        answer = client.put_token("orders", token(world.scheduler.clock_ms()))
        assert answer["status-code"] == 202
        assert client.is_attached(client.sender("orders").link)
        refused = client.attach("r", LinkRole.RECEIVER, source=LinkSource("orders"))
        error = client.refusal(refused)
        assert error is not None
        assert "'Listen' claim(s) are required" in (error.description or "")

    def test_without_a_role_the_token_is_refused(self, world: World, source: Source) -> None:
        client = world.connect(token=False)
        answer = client.put_token("bills", token(world.scheduler.clock_ms()))
        assert answer["status-code"] == 401
        assert "'appid shop' has no role for 'bills'" in answer["status-description"]
        assert client.server.is_stranger

    def test_links_end_with_the_token(self, world: World, source: Source) -> None:
        clock_ms = world.scheduler.clock_ms()
        client = world.connect(token=False)
        client.put_token("orders", token(clock_ms, exp=clock_ms // 1000 + 30))
        link = client.sender("orders").link
        assert client.is_attached(link)
        world.settle(for_ms=200_000)
        assert client.refusal(link) is not None or client.closed_with is not None

    def test_a_new_key_is_fetched_while_the_client_waits(
        self, world: World, source: Source
    ) -> None:
        client = world.connect(token=False)
        cbs = client.requests("$cbs")
        asked = cbs.ask(
            {"operation": "put-token", "type": "jwt", "name": f"sb://{HOST}/orders"},
            token(world.scheduler.clock_ms(), "second"),
        )
        world.settle()
        assert cbs.reply(asked) is None
        source.answer("first", "second")
        world.settle()
        reply = cbs.reply(asked)
        assert reply is not None
        assert reply[0]["status-code"] == 202

    def test_a_client_that_leaves_meanwhile_does_no_harm(
        self, world: World, source: Source
    ) -> None:
        client = world.connect(token=False)
        client.requests("$cbs").ask(
            {"operation": "put-token", "type": "jwt", "name": f"sb://{HOST}/orders"},
            token(world.scheduler.clock_ms(), "second"),
        )
        world.settle()
        client.server.lost()
        source.answer("first", "second")
        world.settle()
        assert not world.gateway.connections

    def test_where_no_issuer_is_trusted_it_is_said(self, world: World) -> None:
        client = world.connect(token=False)
        answer = client.put_token("", token(world.scheduler.clock_ms()))
        assert answer["status-code"] == 401
        assert "[[issuers]]" in answer["status-description"]

    def test_one_for_another_namespace_is_refused(self, world: World, source: Source) -> None:
        client = world.connect(token=False)
        text = token(world.scheduler.clock_ms(), aud="sb://other.example/orders")
        answer = client.put_token("orders", text)
        assert answer["status-code"] == 401
        assert "InvalidAudience" in answer["status-description"]
