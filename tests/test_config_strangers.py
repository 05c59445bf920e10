"""What clients without a valid token may have, by configuration."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from busway.amqp.settings import StrangerLimits
from busway.config import ConfigError, load
from busway.config.strangers import KEYS
from busway.gateway.gateway import GatewaySettings, settings_for
from busway.model.strangers import RANGES, StrangerShare

REFERENCE = Path(__file__).parents[1] / "docs" / "reference" / "configuration.md"


def share(tmp_path: Path, text: str) -> StrangerShare:
    path = tmp_path / "busway.toml"
    path.write_text(text)
    return load({"config": path}, {}).strangers


def test_without_a_table_the_defaults_hold(tmp_path: Path) -> None:
    assert share(tmp_path, "") == StrangerShare()
    assert settings_for(StrangerShare()) == GatewaySettings()
    assert GatewaySettings().stranger == StrangerLimits()


def test_what_the_table_states_is_what_gateways_do(tmp_path: Path) -> None:
    stated = share(
        tmp_path,
        '[strangers]\nconnections = 7\nlinks = 5\nframes = 60\nbytes = 20000\ntoken_wait = "5s"\n'
        'http_connections = 9\nhttp_requests = 11\nhttp_bytes = 600000\nhttp_idle = "3s"\n',
    )
    settings = settings_for(stated)
    assert settings.strangers_max == 7
    assert settings.stranger == StrangerLimits(bytes_max=20_000, frames_max=60, links_max=5)
    assert settings.token_wait_ms == 5_000
    assert (stated.http_connections, stated.http_requests) == (9, 11)
    assert (stated.http_bytes, stated.http_idle_ms) == (600_000, 3_000)


@pytest.mark.parametrize(
    "line",
    [
        "connections = 0",
        "connections = true",
        'connections = "many"',
        "bytes = 10",
        "links = 1",
        "frames = 1",
        "token_wait = 20",
        'token_wait = "0s"',
        'token_wait = "soon"',
        'http_idle = "1d"',
        "http_bytes = 1",
        "visitors = 3",
    ],
)
def test_what_cannot_be_is_refused_with_what_can(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        share(tmp_path, f"[strangers]\n{line}\n")
    assert "[strangers]" in str(caught.value)
    assert line.partition(" ")[0] in str(caught.value)


def test_every_field_has_a_word_a_range_and_a_line_in_the_reference() -> None:
    names = {field.name for field in fields(StrangerShare)}
    assert set(KEYS.values()) == set(RANGES) == names
    for name in names:
        least, most = RANGES[name]
        assert least <= getattr(StrangerShare(), name) <= most
    text = REFERENCE.read_text()
    for word in KEYS:
        assert f"| `{word}` |" in text
