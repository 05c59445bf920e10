"""Keys are shown to who asks for them, and to nobody who reads a log."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway.testing import Server

ENDED_S = 120
CONFIG = '[[queues]]\nname = "orders"\n\n[namespaces.contoso]\n'
GIVEN = "the-key-that-was-given"


def busway(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BUSWAY_")}
    return subprocess.run(
        [sys.executable, "-m", "busway", *arguments],
        capture_output=True,
        text=True,
        timeout=ENDED_S,
        check=False,
        env=clean,
        cwd=folder,
    )


def until_ready(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith("ready"):
            break
    return lines


def started(*arguments: str) -> tuple[list[str], str]:
    """What a server says on standard output and in its log, from start to end."""
    command = [sys.executable, "-m", "busway", "serve", "--port", "0", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        lines = until_ready(process)
        process.terminate()
        rest, log = process.communicate(timeout=ENDED_S)
    return [*lines, *rest.splitlines()], log


def test_a_log_has_no_key(tmp_path: Path) -> None:
    config = tmp_path / "busway.toml"
    config.write_text(CONFIG)
    data = tmp_path / "data"
    lines, log = started("--data", str(data), "--config", str(config), "--log-level", "debug")
    keys = [(data / name).read_text().strip() for name in ("root.key", "root.contoso.key")]
    for key in keys:
        assert key not in "\n".join(lines) + log
    assert lines[0] == (
        f"connection string: not shown, it has a key; 'busway connection-string {data}' shows it"
    )
    assert lines[1].startswith("ready on 127.0.0.1:")


def test_a_server_in_memory_says_how_its_key_is_shown() -> None:
    lines, log = started("--memory", "--key", GIVEN)
    assert "--print-connection-string shows it" in lines[0]
    assert GIVEN not in "\n".join(lines) + log


def test_who_asks_for_it_when_the_server_starts_sees_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    lines, log = started("--data", str(data), "--print-connection-string")
    key = (data / "root.key").read_text().strip()
    assert f"SharedAccessKey={key};" in lines[0]
    assert key not in log


def test_a_terminal_sees_it(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "busway", "serve", "--port", "0", "--data", str(tmp_path)],
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as screen:
        seen = b""
        while b"ready" not in seen:
            seen += screen.read(1000)
        process.terminate()
        assert process.wait(ENDED_S) == 0
    assert (tmp_path / "root.key").read_bytes().strip() in seen


def test_the_command_prints_what_the_server_would(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Server(config=CONFIG, data=data, arguments=["--tls"]) as server:
        said = busway("connection-string", str(data))
        assert (said.returncode, said.stderr) == (0, "")
        assert said.stdout.strip() == server.connection_string
        assert busway("connection-string", folder=tmp_path).stdout == said.stdout
        tls = busway("connection-string", str(data), "--tls").stdout.strip()
        assert tls == server.tls_connection_string
        other = busway("connection-string", str(data), "--namespace", "Contoso").stdout.strip()
        assert other == server.connection_strings["contoso"]
        with (
            ServiceBusClient.from_connection_string(said.stdout.strip()) as client,
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages(ServiceBusMessage("x"))


def test_a_key_that_was_given_by_a_file_is_read_from_that_file(tmp_path: Path) -> None:
    key_file = tmp_path / "the.key"
    key_file.write_text(f"{GIVEN}\n")
    data = tmp_path / "data"
    with Server("orders", data=data, arguments=["--key-file", str(key_file)]) as server:
        assert f"SharedAccessKey={GIVEN};" in server.connection_string
        said = busway("connection-string", str(data))
        assert said.returncode == 2
        assert "Name a file that has it with --key-file" in said.stderr
        assert GIVEN not in said.stderr
        said = busway("connection-string", str(data), "--key-file", str(key_file))
        assert said.stdout.strip() == server.connection_string
    assert not (data / "root.key").exists()


def test_a_namespace_has_a_key_file_as_well(tmp_path: Path) -> None:
    key_file = tmp_path / "contoso.key"
    key_file.write_text(GIVEN)
    config = f'[namespaces.contoso]\nkey_file = "{key_file}"\n'
    with Server(config=config, data=tmp_path / "data") as server:
        assert f"SharedAccessKey={GIVEN};" in server.connection_strings["contoso"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["connection-string", "no-such-folder"], "cannot be read: No such file or directory"),
        (["connection-string", ".", "--namespace", "contoso"], "has no namespace 'contoso'"),
        (["connection-string", ".", "--tls"], "was last served without TLS"),
        (["connection-string", "--key-file", "none"], "--key-file: none: there is no such file"),
        (["serve", "--memory", "--key-file", "none"], "--key-file: none: there is no such file"),
        (["serve", "--memory", "--key-file", "short"], "must be one word of at least"),
        (
            ["serve", "--memory", "--key-file", "short", "--key", GIVEN],
            "--key and --key-file are both given",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    tmp_path: Path, arguments: list[str], told: str
) -> None:
    (tmp_path / "short").write_text("two words")
    said = busway(*arguments, folder=tmp_path)
    assert said.returncode == 2
    assert told in said.stderr
    assert said.stderr.count("\n") == 1
    assert said.stdout == ""
