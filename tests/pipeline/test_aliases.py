"""Names that users of other connectors write."""

from __future__ import annotations

import logging

import pytest

from busway.pipeline.datasource.aliases import ALIASES, INSTEAD, renamed
from busway.pipeline.datasource.options import READ_OPTIONS, OptionError
from busway.pipeline.datasource.source import BuswayDataSource


@pytest.mark.parametrize(("alias", "own"), ALIASES.items())
def test_what_means_the_same_is_taken_with_a_hint(
    alias: str, own: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    assert own in {option.name for option in READ_OPTIONS}
    assert renamed({alias.upper(): "1"}) == {own: "1"}
    assert f"'{alias}' is called '{own}' here" in caplog.text
    with pytest.raises(OptionError, match="both are given"):
        renamed({alias: "1", own.lower(): "2"})


@pytest.mark.parametrize("name", INSTEAD)
def test_what_has_no_like_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(OptionError, match=f"'{name}' is no option here"):
        renamed({"entity": "orders", name.lower(): "x"})


def test_the_source_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "BUSWAY_CONNECTION_STRING",
        "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b",
    )
    source = BuswayDataSource({"subscribe": "orders", "startingOffsets": "latest"})
    assert "body" in source.schema().names
    with pytest.raises(OptionError, match="credentialsFrom"):
        BuswayDataSource({"subscribe": "orders", "kafka.bootstrap.servers": "x:9092"})
