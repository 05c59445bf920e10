"""What the command line says when it is asked, and when it is asked for what it cannot do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import busway
from busway.config.settings import SETTING_NAMES


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BUSWAY_")}
    return subprocess.run(
        [sys.executable, "-m", "busway", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=clean | variables,
    )


def test_without_arguments_it_shows_what_there_is() -> None:
    said = run()
    assert "serve" in said.stdout + said.stderr
    assert "version" in said.stdout + said.stderr


def test_version_tells_what_it_runs_on() -> None:
    said = run("version", BUSWAY_CODEC="pure")
    assert said.returncode == 0
    told = dict(line.split(maxsplit=1) for line in said.stdout.splitlines())
    assert told["busway"] == busway.__version__
    assert told["codec"] == "pure"
    assert told["python"] == sys.version.split()[0]
    assert told["loop"] in ("asyncio", "uvloop")
    assert re.fullmatch(r"3\.\d+\.\d+", told["sqlite"])


def test_the_help_of_serve_names_every_setting() -> None:
    said = run("serve", "--help").stdout
    for name in SETTING_NAMES:
        assert f"--{name.replace('_', '-')} " in said


def test_the_help_of_serve_says_what_this_release_does_not_do() -> None:
    said = " ".join(run("serve", "--help").stdout.split())
    assert "Only 1 in this release" in said


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--nodes", "2"], "--nodes is more than 1"),
        (["--port", "x"], '--port is "x", and must be a whole number from 0 to 65535'),
        (["--port", "70000"], "--port is"),
        (["--http-port", "on"], '--http-port is "on", and must be a whole number from 0'),
        (["--http-port", "70000"], "from 0 to 65535, or off."),
        (["--stores", "0"], "--stores is"),
        (["--tls"], "--tls keeps its certificate in the data folder, and with --memory there is"),
        (["--tls-cert", "a.pem"], "--tls-cert is given without --tls-key."),
        (["--tls-key", "a.key"], "--tls-key is given without --tls-cert."),
        (["--tls", "--tls-cert", "a", "--tls-key", "b"], "--tls and --tls-cert are both given."),
        (["--key", "short"], "--key must be one word of at least 16 characters"),
        (["--config", "no-such-file.toml"], "no-such-file.toml: there is no such file"),
        (["--log-level", "loud"], "--log-level is 'loud', and must be one of debug, info"),
        (["--log-format", "xml"], "--log-format is 'xml', and must be one of text, json"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(arguments: list[str], text: str) -> None:
    said = run("serve", "--memory", *arguments)
    assert said.returncode == 2
    assert said.stdout == ""
    (line,) = said.stderr.splitlines()
    assert line.startswith("busway: ")
    assert text in line


def test_an_unknown_option_is_refused_with_a_proposal() -> None:
    said = run("serve", "--prot", "1")
    assert said.returncode == 2
    assert "--port" in said.stderr


def test_a_variable_is_as_good_as_an_option() -> None:
    said = run("serve", "--memory", BUSWAY_NODES="2")
    assert said.returncode == 2
    assert "--nodes" in said.stderr


def test_a_setting_may_stand_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "busway.toml"
    file.write_text("[serve]\nnodes = 2\nmemory = true\n")
    said = run("serve", "--config", str(file))
    assert said.returncode == 2
    assert "--nodes" in said.stderr


def test_the_log_level_may_be_a_variable() -> None:
    said = run("serve", "--memory", BUSWAY_LOG_LEVEL="loud")
    assert "--log-level is 'loud'" in said.stderr
