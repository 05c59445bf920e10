"""`busway map` and `busway fault`, as somebody at a terminal uses them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from busway.testing import Server
from tests.http.asking import ask, make, map_of
from tests.sdk.conftest import wait_until

CONFIG = """
[[topics]]
name = "news"

[[topics.subscriptions]]
name = "all"
"""
ENDED_S = 120


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    arguments = ["--stores", "3", "--allow-faults"]
    queues = ["orders", *(f"queue-{number}" for number in range(60))]
    with Server(*queues, partitioned=["parts"], config=CONFIG, arguments=arguments) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    yield running
    for store in ("store-0", "store-1", "store-2"):
        make(running, store, "none")
    wait_until(lambda: all(each["state"] == "serving" for each in map_of(running)["stores"]))


def environment(connection_string: str | None) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BUSWAY_")}
    return clean | (
        {} if connection_string is None else {"BUSWAY_CONNECTION_STRING": connection_string}
    )


def run(
    server: Server | None, *arguments: str, connection_string: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    text = connection_string or (None if server is None else server.connection_string)
    return subprocess.run(
        [sys.executable, "-m", "busway", *arguments],
        capture_output=True,
        text=True,
        timeout=ENDED_S,
        check=False,
        env=environment(text) | variables,
    )


# The map


def test_the_map_shows_stores_and_entities(server: Server) -> None:
    said = run(server, "map")
    assert said.returncode == 0, said.stderr
    lines = [line.split() for line in said.stdout.splitlines()]
    for store in ("store-0", "store-1", "store-2"):
        (line,) = (words for words in lines if words[:1] == [store])
        assert line[1:3] == ["ok", "serving"]
    assert "\x1b" not in said.stdout, "colours are for terminals"
    assert "more; --entity or --top shows them" in said.stdout


def test_the_map_has_a_sign_for_each_partition(server: Server) -> None:
    said = run(server, "map", "--entity", "part*").stdout
    (line,) = (row for row in said.splitlines() if row.startswith("parts "))
    assert line.split()[:5] == ["parts", "queue,", "partitioned", "0", "Available"]
    assert "".join(line.split()[5:]) == "." * 16


def test_the_map_of_one_entity_has_its_partitions(server: Server) -> None:
    said = run(server, "map", "--entity", "parts").stdout
    rows = [row.split() for row in said.partition("parts:")[2].splitlines() if row]
    assert [row[0] for row in rows] == ["partition", *map(str, range(16))]


def test_the_map_of_a_topic_has_its_subscriptions(server: Server) -> None:
    said = run(server, "map", "--entity", "news").stdout.lower()
    assert "news/subscriptions/all" in said


def test_the_map_shows_what_cannot_be_reached(server: Server) -> None:
    make(server, "store-1", "gone")
    said = run(server, "map", "--entity", "par*").stdout
    assert "gone" in said
    (line,) = (row for row in said.splitlines() if row.startswith("parts "))
    assert "Limited" in line
    assert "xxxxx" in line


def test_the_map_as_json_is_that_of_the_server(server: Server) -> None:
    said = json.loads(run(server, "map", "--json", "--top", "1000").stdout)
    told = map_of(server, "?top=1000")
    assert [each["name"] for each in said["entities"]] == [
        each["name"] for each in told["entities"]
    ]
    assert len(said["entities"]) == said["total"] == 64


def test_nothing_to_show_is_said(server: Server) -> None:
    assert "no entities" in run(server, "map", "--entity", "nothing").stdout


def test_a_token_for_metrics_opens_metrics_and_no_map(server: Server) -> None:
    """As the reference tells those who set up Prometheus."""
    token = run(server, "token", "--entity", "metrics", "--ttl", "365d").stdout.strip()
    assert ask(server, "GET", "/metrics", token=token).status == 200
    assert ask(server, "GET", "/$busway/map", token=token).status == 401


# Faults


def test_a_fault_is_set_and_taken_back(server: Server) -> None:
    said = run(server, "fault", "store-2", "gone")
    assert (said.returncode, said.stdout) == (0, "store-2: gone, opening\n")
    assert map_of(server)["stores"][2]["fault"] == "gone"
    said = run(server, "fault", "store-2", "none")
    assert (said.returncode, said.stdout) == (0, "store-2: none, serving\n")


def test_a_slow_store_has_its_delay(server: Server) -> None:
    assert run(server, "fault", "0", "slow", "--delay-ms", "20").returncode == 0
    assert map_of(server)["stores"][0]["delay_ms"] == 20


def test_a_fault_for_some_time_is_over_then(server: Server) -> None:
    said = run(server, "fault", "store-0", "ill", "--for", "1")
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines() == ["store-0: ill, refusing", "store-0: none, serving"]
    assert map_of(server)["stores"][0]["fault"] == "none"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_fault_for_some_time_does_not_outlive_its_command(server: Server, number: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "busway", "fault", "store-0", "gone", "--for", "3600"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(server.connection_string),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "store-0: gone, opening\n"
    process.send_signal(number)
    said, _ = process.communicate(timeout=ENDED_S)
    assert said == "store-0: none, serving\n"
    assert process.returncode == 130
    assert map_of(server)["stores"][0]["fault"] == "none"


# What goes wrong


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["fault", "store-0", "broken"], "must be one of slow, ill, gone, none"),
        (["fault", "store-0", "slow"], "--delay-ms says how slow"),
        (["fault", "store-0", "gone", "--delay-ms", "5"], "--delay-ms says how slow"),
        (["fault", "store-0", "slow", "--delay-ms", "0"], "whole number from 1 to 60000"),
        (["fault", "store-0", "gone", "--for", "x"], "whole number from 1 to 86400"),
        (["map", "--top", "0"], "whole number from 1"),
    ],
)
def test_what_cannot_be_is_refused_before_anybody_is_asked(arguments: list[str], text: str) -> None:
    said = run(None, *arguments, connection_string="Endpoint=sb://localhost:1;")
    assert said.returncode == 2
    assert text in said.stderr
    assert "Traceback" not in said.stderr


def test_without_a_connection_string_it_says_where_to_find_one() -> None:
    said = run(None, "map")
    assert said.returncode == 2
    assert "BUSWAY_CONNECTION_STRING" in said.stderr


@pytest.mark.parametrize(
    ("connection_string", "text", "status"),
    [
        ("nonsense", "is not one", 2),
        ("Endpoint=sb://;SharedAccessKeyName=a;SharedAccessKey=b", "is not one", 2),
        (
            "Endpoint=sb://localhost:1;SharedAccessKeyName=a;SharedAccessKey=b;"
            "UseDevelopmentEmulator=true;",
            "Nobody listens at localhost:1",
            3,
        ),
    ],
)
def test_a_server_that_is_not_there_is_said_so(
    connection_string: str, text: str, status: int
) -> None:
    said = run(None, "map", connection_string=connection_string)
    assert said.returncode == status
    assert text in said.stderr
    assert "Traceback" not in said.stderr


def test_a_wrong_key_is_said_so(server: Server) -> None:
    said = run(None, "map", connection_string=server.connection_string.replace("Key=", "Key=x"))
    assert said.returncode == 4
    assert "does not accept the key of 'RootManageSharedAccessKey'" in said.stderr


def test_a_store_that_is_not_there_is_said_so(server: Server) -> None:
    said = run(server, "fault", "store-9", "gone")
    assert said.returncode == 5
    assert "There is no store 'store-9'. There are store-0, store-1, store-2." in said.stderr


def test_a_server_in_tls_is_asked_if_its_authority_is_trusted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Server("orders", data=data, arguments=["--tls", "--tls-port", "off"]) as server:
        in_tls = server.connection_string.replace("UseDevelopmentEmulator=true;", "")
        said = run(None, "map", connection_string=in_tls)
        assert said.returncode == 3
        assert "is not trusted" in said.stderr
        assert "SSL_CERT_FILE" in said.stderr
        authority = str(data / "tls" / "authority.pem")
        said = run(None, "map", connection_string=in_tls, SSL_CERT_FILE=authority)
        assert said.returncode == 0, said.stderr
        assert "orders" in said.stdout


def test_a_server_that_does_not_allow_it_says_how_it_would() -> None:
    with Server() as server:
        said = run(server, "fault", "store-0", "gone")
    assert said.returncode == 1
    assert "--allow-faults" in said.stderr
