"""Keys of issuers: from files and addresses that may be slow, down, or hostile."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from busway.model.identity import Issuer
from busway.runtime import issuer_keys
from busway.runtime.data_folder import StartError
from busway.runtime.issuer_keys import IssuerKeys
from tests.gateway.issuers import ISSUER, key_set

WAIT_S = 60.0


class KeyServer:
    """Answers as a test says, and counts who asks."""

    def __init__(self) -> None:
        self.answer: Callable[[BaseHTTPRequestHandler], None] = self.give(200, key_set("first"))
        self.asked = 0
        self.gone_on = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                outer.answer(self)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/keys"

    @staticmethod
    def give(status: int, body: bytes, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(status)
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)

        return answer

    def hang(self, handler: BaseHTTPRequestHandler) -> None:
        self.gone_on.wait(WAIT_S)

    def close(self) -> None:
        self.gone_on.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def served() -> Iterator[KeyServer]:
    server = KeyServer()
    yield server
    server.close()


def at(url: str) -> IssuerKeys:
    return IssuerKeys(Issuer(issuer=ISSUER, jwks_url=url))


def kids(keys: IssuerKeys) -> list[str | None]:
    return [key.kid for key in keys.keys.keys]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_keys_come_from_an_address(served: KeyServer) -> None:
    keys = at(served.url)
    await keys.start()
    assert kids(keys) == ["first"]
    assert keys.problem is None
    keys.stop()


async def test_an_address_that_is_down_does_not_keep_the_broker_from_starting() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        keys = at(f"http://127.0.0.1:{nobody.getsockname()[1]}/keys")
        await keys.start()
    assert kids(keys) == []
    assert "refused" in (keys.problem or "")
    keys.stop()


async def test_one_that_hangs_blocks_nobody(
    served: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "FIRST_ANSWER_S", 0.0)
    served.answer = served.hang
    keys = at(served.url)
    await keys.start()
    await until(lambda: served.asked)
    turns = 0
    for _ in range(1_000):  # the loop goes on
        await asyncio.sleep(0)
        turns += 1
    assert turns == 1_000
    assert kids(keys) == []
    told: list[str] = []
    assert keys.refresh(lambda: told.append("over"))  # waits for the one that is under way
    assert served.asked == 1
    served.gone_on.set()
    await until(lambda: told)
    keys.stop()


async def test_one_that_drips_is_given_up(
    served: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "FETCH_S", 0.2)

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while not served.gone_on.wait(0.01):
                handler.wfile.write(b" ")
        except OSError:
            pass  # it was given up

    served.answer = drip
    keys = at(served.url)
    await keys.start()
    await until(lambda: keys.problem != "they were not read yet")
    assert "longer than" in (keys.problem or "") or "within" in (keys.problem or "")
    keys.stop()


@pytest.mark.parametrize(
    ("status", "body", "headers", "problem"),
    [
        (500, b"", {}, "it answers 500"),
        (302, b"", {"Location": "http://127.0.0.1:1/other"}, "it answers 302"),
        (200, b"<html>", {}, "it is not JSON"),
        (200, b"{}", {}, "it has no list 'keys'"),
        (200, b" " * (issuer_keys.BYTES_MAX + 1), {}, "more than 1048576 bytes"),
    ],
)
async def test_answers_that_are_no_keys(
    served: KeyServer, status: int, body: bytes, headers: dict[str, str], problem: str
) -> None:
    served.answer = served.give(status, body, **headers)
    keys = at(served.url)
    await keys.start()
    await until(lambda: problem in (keys.problem or ""))
    keys.stop()


async def test_strangers_cannot_make_us_ask_often(served: KeyServer) -> None:
    keys = at(served.url)
    await keys.start()
    assert not any(keys.refresh(lambda: None) for _ in range(1_000))
    assert served.asked == 1
    keys.stop()


async def test_a_new_key_is_found_when_it_is_asked_for(
    served: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = at(served.url)
    await keys.start()
    monkeypatch.setattr(issuer_keys, "ASKED_AGAIN_AFTER_S", 0.0)
    served.answer = served.give(200, key_set("second"))
    over = asyncio.Event()
    assert keys.refresh(over.set)
    await asyncio.wait_for(over.wait(), WAIT_S)
    assert kids(keys) == ["second"], "the one that was withdrawn is gone"
    keys.stop()


async def test_while_it_fails_the_keys_before_stay_for_a_day(
    served: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = at(served.url)
    await keys.start()
    served.answer = served.give(503, b"")
    await keys.reload()
    assert kids(keys) == ["first"]
    assert keys.problem is None
    monkeypatch.setattr(issuer_keys, "KEPT_WITHOUT_ANSWER_S", -1.0)
    await keys.reload()
    assert kids(keys) == []
    assert keys.problem == "it answers 503"
    keys.stop()


async def test_a_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(key_set("first"))
    keys = IssuerKeys(Issuer(issuer=ISSUER, jwks_file=file))
    await keys.start()
    assert kids(keys) == ["first"]
    file.write_bytes(key_set("second"))
    await keys.reload()
    assert kids(keys) == ["second"]
    keys.stop()


@pytest.mark.parametrize("content", [None, b"", b"{}"])
async def test_a_file_without_keys_keeps_it_from_starting(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "keys.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(StartError, match="Give it the JSON Web Key Set"):
        await IssuerKeys(Issuer(issuer=ISSUER, jwks_file=file)).start()
