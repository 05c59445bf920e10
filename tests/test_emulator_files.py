"""Config.json of Microsoft's emulator as it is shipped and as people edit it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.config import ConfigError, load
from busway.config.json_with_comments import loads, plain

SHIPPED = """\
// Emulator configuration
{
  "UserConfig": {
    "Namespaces": [
      {
        "Name": "sbemulatorns",
        "Queues": [
          { "Name": "queue.1", "Properties": { "MaxDeliveryCount": 5, }, },
          { "Name": "queue.2" },
        ],
        "Topics": [
          {
            "Name": "topic.1",
            "Properties": { "RequiresDuplicateDetection": true },
            "Subscriptions": [
              {
                "Name": "subscription.1",
                "Rules": [
                  {
                    "Name": "app-prop-filter-1",
                    "Properties": {
                      "FilterType": "Correlation",
                      "CorrelationFilter": {
                        "ContentType": "application/json"
                        // Other supported properties
                        // "CorrelationId": "id1",
                        /* "Label": "subject1",
                           "To": "xyz" */
                      }
                    }
                  }
                ]
              }
            ]
          }
        ]
      }
    ],
    "Logging": { "Type": "File" }
  }
}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestJsonWithComments:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ('{"a": 1, // one\n "b": 2}', {"a": 1, "b": 2}),
            ('{"a": /* 1 */ 2}', {"a": 2}),
            ('{"a": [1, 2, ], }', {"a": [1, 2]}),
            ('{"a": [1, 2, // last\n /* really */ ]\n, }', {"a": [1, 2]}),
            ('{"a": "http://x/*y*/,]"}', {"a": "http://x/*y*/,]"}),
            (r'{"a": "quote \" // no comment"}', {"a": 'quote " // no comment'}),
            (r'{"a\\": 1, }', {"a\\": 1}),
        ],
    )
    def test_is_read_as_meant(self, text: str, value: object) -> None:
        assert loads(text) == value

    @pytest.mark.parametrize(
        "text", ["{,}", "[1,,]", '{"a":,}', "[,1]", '{"a": 1 /* }', '{"a": "x']
    )
    def test_what_is_wrong_stays_wrong(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"line|char"):
            loads(text)

    def test_a_mistake_is_told_with_its_own_line(self, tmp_path: Path) -> None:
        path = tmp_path / "Config.json"
        path.write_text('{\n// a comment\n/* and\n another */ "UserConfig": nothing\n}')
        with pytest.raises(ConfigError, match="line 4 column 27"):
            load({"config": path}, {})

    @given(st.text(alphabet='{}[]",:/*\\ \n1a', max_size=40))
    def test_every_text_is_read_or_refused(self, text: str) -> None:
        if "/*" in text:
            text += "*/"  # one that is not closed has a test of its own
        assert len(plain(text)) == len(text)


class TestEmulatorFlag:
    def test_the_file_as_shipped_is_found_beside_us(self, here: Path) -> None:
        (here / "Config.json").write_text(SHIPPED)
        found = load({"emulator": True}, {})
        assert found.settings.config == Path("Config.json")
        paths = [each.path for each in found.entities]
        assert paths == ["queue.1", "queue.2", "topic.1", "topic.1/Subscriptions/subscription.1"]

    def test_what_is_not_stated_is_as_in_the_emulator(self, here: Path) -> None:
        (here / "Config.json").write_text(SHIPPED)
        first, second, topic, subscription = (
            each.entity for each in load({"emulator": True}, {}).entities
        )
        got: list[Any] = [first, second, topic, subscription]
        assert [each.default_ttl_ms for each in got] == [3_600_000] * 4
        assert [each.max_delivery_count for each in (got[0], got[1], got[3])] == [5, 3, 3]
        assert got[2].duplicate_window_ms == 20_000

    def test_without_the_flag_it_is_as_in_the_service(self, here: Path) -> None:
        (here / "Config.json").write_text(SHIPPED)
        second: Any = load({"config": "Config.json"}, {}).entities[1].entity
        assert second.max_delivery_count == 10
        assert second.default_ttl_ms is None

    def test_its_ports_and_key_are_the_emulators(self, here: Path) -> None:
        found = load({"emulator": True}, {})
        assert (found.settings.port, found.settings.http_port) == (5672, 5300)
        assert "http_port" in found.chosen  # must be had
        assert found.namespaces[0].key == "SAS_KEY_VALUE"
        assert found.settings.host == "127.0.0.1"

    def test_variables_of_its_compose_file_count(self, here: Path) -> None:
        (here / "other.json").write_text(SHIPPED)
        variables = {"CONFIG_PATH": "other.json", "EMULATOR_HTTP_PORT": "5301"}
        found = load({"emulator": True}, variables)
        assert (found.settings.config, found.settings.http_port) == (Path("other.json"), 5301)
        assert load({}, variables).settings.config is None  # not without the flag

    def test_a_file_that_is_named_and_missing_is_refused(self, here: Path) -> None:
        with pytest.raises(ConfigError, match=r"CONFIG_PATH is 'none\.json', and there is no such"):
            load({"emulator": True}, {"CONFIG_PATH": "none.json"})

    def test_what_is_said_goes_before_it(self, here: Path) -> None:
        (here / "Config.json").write_text(SHIPPED)
        (here / "mine.toml").write_text('[[queues]]\nname = "mine"\n')
        flags = {"emulator": True, "config": "mine.toml", "key": "k" * 20, "http_port": "off"}
        found = load(flags, {"EMULATOR_HTTP_PORT": "5301"})
        assert [each.path for each in found.entities] == ["mine"]
        assert found.namespaces[0].key == "k" * 20
        assert found.settings.http_port is None

    def test_its_key_is_refused_as_a_key_of_ones_own(self, here: Path) -> None:
        with pytest.raises(ConfigError, match="at least 16 characters"):
            load({"key": "SAS_KEY_VALUE"}, {})
