"""Tokens over HTTP are judged by the machine's clock, whatever broker time is (D-25, D-34)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from busway.gateway import auth
from busway.model.entities import ROOT_RULE_NAME
from tests.gateway.world import HOST, KEY
from tests.http.in_process import HttpInProcess

NINE_DAYS_MS = 9 * 24 * 3_600_000


@pytest.fixture
def http() -> Iterator[HttpInProcess]:
    with HttpInProcess() as server:
        server.world.queue("orders", capture=True)
        yield server


def status(http: HttpInProcess, path: str, expires_ms: int) -> int:
    token = auth.write(f"sb://{HOST}/", ROOT_RULE_NAME, KEY, expires_ms // 1000)
    return http.request("GET", path, headers={"Authorization": token}).status


@pytest.mark.parametrize("path", ["/orders", "/$busway/map", "/orders/$journal"])
@pytest.mark.parametrize("error_ms", [-NINE_DAYS_MS, NINE_DAYS_MS])
def test_a_token_is_as_old_as_the_clock_says(http: HttpInProcess, path: str, error_ms: int) -> None:
    scheduler = http.world.scheduler
    scheduler.clock_error_ms = error_ms
    assert status(http, path, scheduler.clock_ms() + 60_000) == 200
    assert status(http, path, scheduler.clock_ms() - 1_000) == 401


def test_a_token_that_was_verified_before_is_judged_anew_each_time(http: HttpInProcess) -> None:
    scheduler = http.world.scheduler
    expires_ms = scheduler.clock_ms() + 60_000
    assert status(http, "/orders", expires_ms) == 200
    scheduler.clock_error_ms = NINE_DAYS_MS
    assert status(http, "/orders", expires_ms) == 401
    scheduler.clock_error_ms = 0
    assert status(http, "/orders", expires_ms) == 200
