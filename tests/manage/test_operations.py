"""`busway purge|sessions|connections|top|completion|dead-letters`, and how commands end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from busway.cli.manage.top import compared
from busway.remote.connection import VARIABLE, read
from busway.testing import Server
from tests.manage.conftest import Line

LONG = "60s"
ENDED_S = 120
NOBODY = (
    "Endpoint=sb://localhost:1;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true;"
)
AZURE = "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=b"


def counts(line: Line, queue: str) -> dict[str, int]:
    found: dict[str, int] = line.told("queue", "show", queue)["counts"]
    return found


def busway(*words: str, folder: Path | None = None, **environment: str) -> Any:
    """The real program."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("BUSWAY_", "SSL_CERT"))}
    return subprocess.run(
        [sys.executable, "-m", "busway", *words],
        env=inherited | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=ENDED_S,
        check=False,
    )


# --- Purge ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["--partitioned", "--no-partitioned", "--requires-session"])
def test_a_purge_removes_what_is_named(line: Line, new: Callable[..., str], kind: str) -> None:
    queue = new(kind)
    session = ["--session-id", "a"] if kind == "--requires-session" else []
    line.said("send", queue, "--lines", *session, stdin="1\n2\n3\n4\n5\n")
    line.said("send", queue, "--lines", "--schedule", "1d", *session, stdin="6\n7\n")
    line.said("receive", queue, "--wait", LONG, "--settle", "defer", *session)
    line.said("receive", queue, "--wait", LONG, "--settle", "dead-letter", *session)
    asked = line.refused(2, "purge", queue)
    assert f"Remove 3 active messages of '{queue}' at localhost:" in asked
    assert "say --yes" in asked
    assert counts(line, queue)["active"] == 3
    told = line.told("purge", queue, "--yes")
    assert told == {"entity": queue, "removed": {"active": 3}, "left": 0}
    left = counts(line, queue)
    assert (left["active"], left["scheduled"], left["deferred"]) == (0, 2, 1)
    told = line.told("purge", queue, "--scheduled", "--deferred", "--yes")
    assert told["removed"] == {"deferred": 1, "scheduled": 2}
    told = line.told("purge", queue, "--dead-letter", "--yes")
    assert told["removed"] == {"active": 1}
    assert set(counts(line, queue).values()) == {0}
    assert "removed 0 messages" in line.said("purge", queue, "--everything")


def test_a_purge_leaves_what_others_have_locked(line: Line, new: Callable[..., str]) -> None:
    queue = new("--no-partitioned", "--lock-duration", "5m")
    line.said("send", queue, "--lines", stdin="1\n2\n3\n")
    with line.client() as client, client.get_queue_receiver(queue) as receiver:
        (held,) = receiver.receive_messages(1, max_wait_time=60)
        result = line.type("purge", queue, "--yes")
        assert result.exit_code == 1
        assert "removed 2 messages" in result.stdout
        assert "1 are still there" in result.stderr
        receiver.complete_message(held)
    assert counts(line, queue)["active"] == 0


def test_a_purge_of_many_shows_how_far_it_is(line: Line, new: Callable[..., str]) -> None:
    queue = new()
    text = "".join(f"{n}\n" for n in range(1_200))
    line.said("send", queue, "--lines", "--batch", "100", stdin=text)
    result = line.type("purge", queue, "--yes")
    assert result.stdout == f"removed 1,200 messages of {queue}\n"
    assert "1,200 of 1,200 removed" in result.stderr


# --- Dead letters, sessions ----------------------------------------------------------------------


def test_single_dead_letters_are_resubmitted(line: Line, new: Callable[..., str]) -> None:
    """How many of them, and what happens when something is killed, is in test_triage."""
    queue = new("--no-partitioned")
    for n in range(4):
        line.said("send", queue, f"{n}", "--property", f"n:int={n}")
    line.said("receive", queue, "--count", "4", "--wait", LONG, "--settle", "dead-letter",
              "--reason", "Bad")  # fmt: skip
    found = line.told("dead-letters", "list", queue, "--sample", "4")
    assert (found["dead_letters"], found["by_reason"]) == (4, {"Bad": 4})
    number = next(each["sequence_number"] for each in found["samples"] if each["body"] == "2")
    assert "Which ones?" in line.refused(2, "dead-letters", "resubmit", queue)
    done = line.told("dead-letters", "resubmit", queue, "--sequence-number", str(number))
    assert (done["chosen"], done["moved"]) == (1, 1)
    done = line.told("dead-letters", "resubmit", queue, "--where", "n > 2")
    assert done["moved"] == 1
    line.refused(2, "dead-letters", "resubmit", queue, "--sequence-number", str(number))
    line.said("dead-letters", "resubmit", queue, "--all")
    bodies = line.said("receive", queue, "--count", "4", "--wait", LONG, "--body").split()
    assert sorted(bodies) == ["0", "1", "2", "3"]
    assert counts(line, queue)["dead_letter"] == 0
    assert "0 dead letters" in line.said("dead-letters", "list", queue)
    line.refused(5, "dead-letters", "list", "nowhere")


def test_sessions_and_their_states(line: Line, new: Callable[..., str]) -> None:
    queue = new("--requires-session")
    for session in ("b", "a", "other"):
        line.said("send", queue, "x", "--session-id", session)
    assert line.told("sessions", "list", queue) == ["a", "b", "other"]
    assert line.said("sessions", "list", queue, "--search", "OTH") == "other\n"
    assert line.told("sessions", "state", queue, "a")["state"] is None
    assert line.said("sessions", "state", queue, "a", "--set", "é") == "é\n"
    with line.client() as client, client.get_queue_receiver(queue, session_id="a") as receiver:
        assert receiver.session.get_state() == "é".encode()
        receiver.session.set_state(b"\x00\xff")
        said = line.refused(1, "sessions", "state", queue, "a", "--wait", "100ms")
        assert "session" in said
    told = line.told("sessions", "state", queue, "a")
    assert told == {"entity": queue, "session_id": "a", "state_base64": "AP8="}
    line.said("sessions", "state", queue, "a", "--set-base64", "YQ==")
    assert line.told("sessions", "state", queue, "a")["state"] == "a"
    line.said("sessions", "state", queue, "a", "--set", "-", stdin="read")
    assert line.said("sessions", "state", queue, "a") == "read\n"
    line.said("sessions", "state", queue, "a", "--clear")
    assert line.told("sessions", "state", queue, "a")["state"] is None
    assert "say one" in line.refused(2, "sessions", "state", queue, "a", "--set", "x", "--clear")


# --- Connections, top, completion ----------------------------------------------------------------


def test_connections_are_shown_with_their_links(line: Line, new: Callable[..., str]) -> None:
    queue = new()
    with line.client() as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("x"))
        found = line.told("connections", "--entity", queue)["connections"]
        (link,) = [each for each in found[0]["links"] if each.get("entity") == queue]
        assert (len(found), link["role"]) == (1, "sender")
        assert f"sender {queue}" in line.said("connections")
    assert line.told("connections", "--entity", "nowhere")["connections"] == []


def test_top_shows_depths_rates_partitions_and_stores(line: Line, new: Callable[..., str]) -> None:
    queue = new()
    line.said("send", queue, "x", "--count", "32")
    sample = line.told("top", "--search", queue)
    (entity,) = sample["entities"]
    assert (entity["name"], entity["depth"]["active"]) == (queue, 32)
    assert sum(each["depth"]["active"] for each in entity["partitions"]) == 32
    assert entity["rates"]["messages_in_per_s"] == 0
    assert {each["status"] for each in sample["stores"]} == {"ok"}
    drawn = line.said("top", "--once", "--search", queue)
    assert queue in drawn
    assert "store-0" in drawn
    assert "\x1b" not in drawn
    assert "must be one of in, out" in line.refused(2, "top", "--sort", "colour")


def test_rates_are_what_differs_between_two_looks() -> None:
    def looked(at: float, taken: int) -> dict[str, Any]:
        entity = {
            "path": "q", "type": "queue", "availability": "Available",
            "depth": {"messages": 0, "dead_letter": 0},
            "totals": {"messages_in": taken, "messages_out": 5},
        }  # fmt: skip
        rest = dict.fromkeys(
            ("now", "namespace", "tier", "total", "stores", "connections", "http_connections")
        )
        return {**rest, "at": at, "entities": {"q": entity}, "partitions": {}}

    (entity,) = compared(looked(10.0, 100), looked(12.0, 300), "in")["entities"]
    assert entity["rates"] == {"messages_in_per_s": 100.0, "messages_out_per_s": 0.0}
    (entity,) = compared(looked(10.0, 100), looked(12.0, 10), "in")["entities"]
    assert entity["rates"]["messages_in_per_s"] == 0  # it was restarted


def test_a_shell_completes_commands_and_entities(line: Line, new: Callable[..., str]) -> None:
    queue = new()
    for shell in ("bash", "zsh", "fish", "powershell"):
        assert "_BUSWAY_COMPLETE" in line.said("completion", shell)
    assert "There is nothing for 'ksh'" in line.refused(2, "completion", "ksh")

    def completed(words: str, place: int) -> list[str]:
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(place)}
        done = busway(
            **asked, _BUSWAY_COMPLETE="complete_bash", **{VARIABLE: line.connection_string}
        )
        return str(done.stdout).split()

    assert completed("busway dead-", 1) == ["dead-letters"]
    assert completed(f"busway peek {queue[:8]}", 2) == [queue]


# --- How commands end ----------------------------------------------------------------------------

VERBS = [
    ["queue", "list"],
    ["queue", "show", "nowhere"],
    ["send", "nowhere", "x"],
    ["receive", "nowhere"],
    ["peek", "nowhere"],
    ["purge", "nowhere"],
    ["sessions", "list", "nowhere"],
    ["dead-letters", "list", "nowhere"],
    ["dead-letters", "resubmit", "nowhere", "--all"],
    ["rule", "list", "nowhere", "x"],
    ["top", "--once"],
    ["connections"],
]


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_a_server_that_is_away_is_status_3(line: Line, words: list[str]) -> None:
    assert "Nobody listens at localhost:1" in line.refused(3, *words, by=NOBODY)


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_a_wrong_key_is_status_4(line: Line, words: list[str]) -> None:
    wrong = line.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")
    line.refused(4, *words, by=wrong)


@pytest.mark.parametrize("words", [each for each in VERBS if "nowhere" in each], ids=" ".join)
def test_a_name_that_is_not_there_is_status_5(line: Line, words: list[str]) -> None:
    assert "nowhere" in line.refused(5, *words)


def test_a_right_that_is_missing_is_status_4(line: Line, new: Callable[..., str]) -> None:
    queue = new()
    sends = line.said("rules", "add", "sends", "--send").strip()
    assert "sent 1 message" in line.said("send", queue, "x", by=sends)
    for words in (["queue", "list"], ["receive", queue], ["peek", queue], ["purge", queue],
                  ["queue", "create", "more"], ["top", "--once"]):  # fmt: skip
        line.refused(4, *words, by=sends)
    listens = line.said("rules", "add", "listens", "--listen").strip()
    assert line.lines("peek", queue, by=listens)[0]["body"] == "x"
    line.refused(4, "send", queue, "x", by=listens)


def test_a_real_namespace_has_its_own_port_for_http_and_nothing_of_ours(line: Line) -> None:
    endpoint = read(AZURE).endpoint
    assert (endpoint.port, endpoint.http_port, endpoint.tls) == (5671, 443, True)
    local = read(line.connection_string).endpoint
    assert local.http_port == local.port
    for words in (["top", "--once"], ["connections"], ["map"]):
        said = line.refused(1, *words, by=AZURE)
        assert "what only a Busway server tells" in said


def test_the_server_on_the_data_at_hand_is_meant(line: Line, tmp_path: Path) -> None:
    """Without a connection string; as a real program, in a folder."""
    assert line.server.data is not None
    told = busway("queue", "list", "--json", folder=line.server.data.parent)
    assert told.returncode == 0, told.stderr
    assert isinstance(json.loads(told.stdout), list)
    lost = busway("queue", "list", folder=tmp_path)
    assert lost.returncode == 2
    assert "Which server?" in lost.stderr


def test_what_is_asked_at_a_terminal_can_be_denied(line: Line, new: Callable[..., str]) -> None:
    import pty

    queue = new()
    for answer, status in (("n\n", 1), ("y\n", 0)):
        above, below = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "busway", "queue", "delete", queue],
            env={**os.environ, VARIABLE: line.connection_string},
            stdin=below,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.write(above, answer.encode())
        said, asked = process.communicate(timeout=ENDED_S)
        os.close(above)
        os.close(below)
        assert process.returncode == status, asked
        assert f"Delete queue '{queue}'" in asked
    assert said == f"deleted queue {queue}\n"


def test_output_that_nobody_reads_ends_it(line: Line, new: Callable[..., str]) -> None:
    queue = new("--no-partitioned")
    line.said("send", queue, "x" * 1_000, "--count", "400", "--batch", "100")
    process = subprocess.Popen(
        [sys.executable, "-m", "busway", "peek", queue, "--count", "0", "--json"],
        env={**os.environ, VARIABLE: line.connection_string},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith("{")
    process.stdout.close()
    said = process.stderr.read()
    process.wait(ENDED_S)
    process.stderr.close()
    assert "Traceback" not in said


def test_all_of_it_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with Server(data=data, arguments=["--tls", "--tls-port", "off"]) as server:
        line = Line(server)
        line.connection_string = server.connection_string.replace(
            "UseDevelopmentEmulator=true;", ""
        )
        for words in (["queue", "list"], ["peek", "orders"], ["send", "orders", "x"]):
            assert "is not trusted" in line.refused(3, *words)
        monkeypatch.setenv("SSL_CERT_FILE", str(data / "tls" / "authority.pem"))
        line.said("queue", "create", "orders")
        line.said("send", "orders", "hello")
        (got,) = line.lines("receive", "orders", "--wait", LONG)
        assert got["body"] == "hello"
        assert line.told("top")["entities"][0]["name"] == "orders"


def test_premium_decides_for_its_entities() -> None:
    """P-13: nothing is said of partitions where the namespace has the say."""
    arguments = ["--tier", "premium", "--namespace-partitions", "1"]
    with Server(arguments=arguments) as server:
        line = Line(server)
        line.said("queue", "create", "orders")
        assert line.told("queue", "show", "orders")["partitioned"] in (False, None)


def test_top_draws_on_a_terminal_until_it_is_ended(line: Line, new: Callable[..., str]) -> None:
    import pty
    import select
    import signal
    import time

    queue = new("--no-partitioned")
    above, below = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "busway", "top", "--search", queue, "--every", "1"],
        env={**os.environ, VARIABLE: line.connection_string, "TERM": "xterm", "COLUMNS": "160"},
        stdin=below,
        stdout=below,
        stderr=below,
    )
    os.close(below)
    drawn = b""
    until = time.monotonic() + ENDED_S

    def read_until(done: Callable[[], bool]) -> None:
        nonlocal drawn
        while not done():
            assert time.monotonic() < until, drawn
            if select.select([above], [], [], 1.0)[0]:
                drawn += os.read(above, 65_536)

    try:
        read_until(lambda: drawn.count(queue.encode()) >= 2)  # it was drawn, and drawn anew
        process.send_signal(signal.SIGINT)
        read_until(lambda: b"stopped" in drawn)
        assert process.wait(ENDED_S) == 130
    finally:
        process.kill()
        process.wait()
        os.close(above)
    assert b"Traceback" not in drawn
    assert b"store-0" in drawn
