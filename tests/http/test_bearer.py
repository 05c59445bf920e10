"""Bearer tokens over HTTP: rights by roles, and keys that come while a request waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from busway.gateway.bearer.verifier import BearerTokens
from busway.model.identity import Role, RoleAssignment
from tests.gateway.issuers import ISSUER, Source, token
from tests.http.in_process import Answer, HttpInProcess


class AnswersAtOnce(Source):
    """An issuer that has a second key for who asks again."""

    def refresh(self, then: Callable[[], None]) -> bool:
        if not super().refresh(then):
            return False
        self.answer("first", "second")
        return True


@pytest.fixture
def http() -> Iterator[HttpInProcess]:
    with HttpInProcess() as server:
        server.world.queue("orders")
        server.world.queue("bills")
        yield server


def trusting(http: HttpInProcess, source: Source, role: Role, *entities: str) -> None:
    given = RoleAssignment(role=role, claim="app", value="shop", issuer=ISSUER, entities=entities)
    http.world.gateway.bearer = BearerTokens([source], [given])


def ask(http: HttpInProcess, path: str, key: str = "first", method: str = "GET") -> Answer:
    text = token(http.world.scheduler.clock_ms(), key)
    return http.request(method, path, headers={"Authorization": f"Bearer {text}"})


def test_a_role_in_an_entity_opens_what_is_below_it(http: HttpInProcess) -> None:
    trusting(http, Source("first"), Role.OWNER, "orders")
    assert ask(http, "/orders").status == 200
    assert ask(http, "/orders/$explorer/sessions").status != 401
    refused = ask(http, "/bills")
    assert refused.status == 401
    assert b"has no role for 'bills'" in refused.body


def test_a_role_decides_what_a_request_may(http: HttpInProcess) -> None:
    trusting(http, Source("first"), Role.RECEIVER, "orders")
    refused = ask(http, "/orders/messages", method="POST")
    assert refused.status == 401
    assert b"'Send' claim(s) are required" in refused.body
    refused = ask(http, "/orders/late/messages", method="POST")
    assert b"has no role" in refused.body


def test_an_owner_manages(http: HttpInProcess) -> None:
    trusting(http, Source("first"), Role.OWNER)
    assert ask(http, "/orders").status == 200
    assert ask(http, "/$Resources/queues").status == 200


def test_a_key_that_is_not_known_is_fetched_first(http: HttpInProcess) -> None:
    trusting(http, AnswersAtOnce("first"), Role.OWNER)
    assert ask(http, "/orders", "second").status == 200


def test_one_that_nobody_has_is_refused(http: HttpInProcess) -> None:
    trusting(http, AnswersAtOnce("first"), Role.OWNER)
    refused = ask(http, "/orders", "third")
    assert refused.status == 401
    assert b"its key 'third' is not one of its issuer's" in refused.body


def test_without_issuers_it_is_said_what_to_do(http: HttpInProcess) -> None:
    refused = ask(http, "/orders")
    assert refused.status == 401
    assert b"--dev-tokens" in refused.body
