"""The files for a container, as far as they can be held without Docker: what they copy is there,
what they set is a setting, and what they start is healthy by their own check and shows no key."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from busway.config.settings import ENVIRONMENT_PREFIX, SETTING_NAMES

ROOT = Path(__file__).parent.parent
DOCKER = ROOT / "deploy" / "docker"
WAIT_S = 120


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    split = (line.split(maxsplit=1) for line in lines if line.strip())
    return [(word, " ".join(rest.split())) for word, rest in split]


def values_of(word: str) -> list[str]:
    return [rest for found, rest in instructions() if found == word]


def environment() -> dict[str, str]:
    return dict(re.findall(r'(\w+)="([^"]*)"', " ".join(values_of("ENV"))))


def test_what_is_copied_is_there_and_not_ignored() -> None:
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    for rest in values_of("COPY"):
        words = [word for word in rest.split() if not word.startswith("--")]
        if "--from=" in rest:
            continue
        for source in words[:-1]:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in ignored, source


def test_what_is_set_is_a_setting() -> None:
    own = [name for name in environment() if name.startswith(ENVIRONMENT_PREFIX)]
    assert own
    for name in own:
        assert name.removeprefix(ENVIRONMENT_PREFIX).lower() in SETTING_NAMES


def test_it_does_not_run_as_root() -> None:
    assert values_of("USER") == ["busway"]


def test_compose_publishes_on_this_machine_only() -> None:
    text = (DOCKER / "compose.yaml").read_text()
    published = re.findall(r'- "([^"]+:(?:5672|\$\{EMULATOR_HTTP_PORT:-5300\}))"', text)
    assert len(published) == 2
    assert all(each.startswith("127.0.0.1:") for each in published)
    mounted = re.search(r"\$\{CONFIG_PATH:-([^}]+)\}:(\S+?):ro", text)
    assert mounted is not None
    assert (DOCKER / mounted[1]).is_file()
    assert mounted[2] in " ".join(values_of("COPY"))


def test_what_it_starts_is_healthy_and_shows_no_key(tmp_path: Path) -> None:
    """The entry point with the image's variables, but for the folder, the address and the ports."""
    (check,) = values_of("HEALTHCHECK")
    probe = json.loads(check[check.index("[") :])
    entry = json.loads(values_of("ENTRYPOINT")[0])
    assert (probe[0], entry) == ("python", ["busway", "serve"])
    here = {name: value for name, value in os.environ.items() if not name.startswith("BUSWAY_")}
    variables = (
        here
        | environment()
        | {
            "PATH": os.environ["PATH"],
            "BUSWAY_DATA": str(tmp_path / "data"),
            "BUSWAY_HOST": "127.0.0.1",
            "BUSWAY_PORT": "0",
            "EMULATOR_HTTP_PORT": "0",
            "CONFIG_PATH": str(ROOT / "examples" / "emulator.json"),
            "ACCEPT_EULA": "Y",
        }
    )
    log = tmp_path / "log"
    with log.open("w") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", *entry],
            env=variables,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=written,
            text=True,
        )
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith("ready"):
            break
    try:
        http_port = re.search(r"also on (\d+)", said)
        assert http_port is not None, log.read_text()
        asked = variables | {"EMULATOR_HTTP_PORT": http_port[1]}
        healthy = subprocess.run(
            [sys.executable, *probe[1:]], env=asked, timeout=WAIT_S, check=False
        )
        assert healthy.returncode == 0
    finally:
        process.terminate()
        rest, _ = process.communicate(timeout=WAIT_S)
    assert "SAS_KEY_VALUE" not in said + rest + log.read_text()
    assert "SharedAccessKey=" not in said + rest + log.read_text()
    assert "emulator.json" in log.read_text()
