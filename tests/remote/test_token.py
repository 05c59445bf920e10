"""`busway token`, as somebody at a terminal uses it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from busway.gateway import auth
from busway.testing import Server
from tests.http.rest_client import Rest

ACCESS = '[[access]]\nname = "shop"\nrights = ["Send"]\nkey = "the-key-of-the-shop"\n'


def run(*arguments: str, folder: Path | None = None, **variables: str) -> tuple[int, str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BUSWAY_")}
    done = subprocess.run(
        [sys.executable, "-m", "busway", "token", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=clean | variables,
        cwd=folder,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("somewhere") / "data"
    with Server("orders", "others", config=ACCESS, data=data) as running:
        yield running


def statuses(server: Server, token: str) -> dict[str, int]:
    rest = Rest(server, token)
    found = {
        "send": rest.send("orders", "x").status,
        "receive": rest.delete("orders", timeout=0).status,
        "send elsewhere": rest.send("others", "x").status,
    }
    rest.close()
    return found


def test_the_root_key_of_a_data_folder_signs_for_everything(server: Server) -> None:
    assert server.data is not None
    for arguments, folder in (
        (["--data", str(server.data)], None),
        ([], server.data.parent),  # where the folder is called `data`
    ):
        status, token, said = run(*arguments, folder=folder)
        assert (status, said) == (0, "")
        assert token.count("\n") == 1
        assert statuses(server, token.strip()) == {
            "send": 201,
            "receive": 200,
            "send elsewhere": 201,
        }


def test_a_token_may_be_for_one_entity(server: Server) -> None:
    _, token, _ = run("--data", str(server.data), "--entity", "/Orders/")
    assert statuses(server, token.strip()) == {"send": 201, "receive": 200, "send elsewhere": 401}


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_connection_string_says_whose_rights_it_has(server: Server, how: str) -> None:
    text = (
        f"Endpoint=sb://localhost:{server.port};SharedAccessKeyName=shop;"
        "SharedAccessKey=the-key-of-the-shop;UseDevelopmentEmulator=true;"
    )
    if how == "option":
        _, token, _ = run("--connection-string", text)
    else:
        _, token, _ = run(BUSWAY_CONNECTION_STRING=text)
    assert statuses(server, token.strip()) == {"send": 201, "receive": 401, "send elsewhere": 201}


@pytest.mark.parametrize(("ttl", "lasts_s"), [(None, 3600), ("90s", 90), ("PT8H", 8 * 3600)])
def test_it_lasts_as_long_as_it_is_told_to(server: Server, ttl: str | None, lasts_s: int) -> None:
    before = int(time.time())
    _, token, _ = run("--data", str(server.data), *([] if ttl is None else ["--ttl", ttl]))
    expiry = int(auth.parse(token.strip()).expiry)
    assert before + lasts_s <= expiry <= int(time.time()) + lasts_s


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ttl", "soon"], "is not a duration such as 30s"),
        (["--ttl", "0s"], "must be a second or longer"),
        (["--ttl", "unlimited"], "must be a second or longer"),
        (["--data", "no-such-folder"], "cannot be read: No such file or directory"),
        (["--connection-string", "nonsense"], "The connection string is not one"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(arguments: list[str], said: str) -> None:
    status, token, text = run(*arguments)
    assert (status, token) == (2, "")
    (line,) = text.splitlines()
    assert said in line


def test_an_empty_folder_is_left_as_it_is(tmp_path: Path) -> None:
    assert run("--data", str(tmp_path))[0] == 2
    assert list(tmp_path.iterdir()) == []
