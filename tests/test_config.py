"""Settings from flags, environment and files, and entities from files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.config import ConfigError, DeclaredQueue, Settings, load
from busway.config.entities import EMULATOR_ROWS, TOML_ROWS, read_entities
from busway.model.durations import DAY_MS, format_iso
from busway.model.entities import EntityStatus, Queue
from busway.model.properties import Kind, show

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


def file_with(tmp_path: Path, text: str, name: str = "busway.toml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def said(tmp_path: Path, text: str) -> str:
    """What a person is told about this file, without its folder."""
    path = file_with(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load({"config": path}, {})
    return str(raised.value).replace(f"{tmp_path}/", "")


class TestSettings:
    def test_defaults(self) -> None:
        settings = load({}, {}).settings
        assert settings == Settings(
            data=Path("data"),
            host="127.0.0.1",
            port=5672,
            http_port=5300,
            stores=2,
            nodes=1,
            key=None,
            config=None,
            memory=False,
        )

    def test_flags_go_before_environment_before_file_before_defaults(self, tmp_path: Path) -> None:
        config = file_with(tmp_path, "[serve]\nport = 1\nhttp_port = 1\nstores = 1\n")
        environ = {"BUSWAY_PORT": "2", "BUSWAY_HTTP_PORT": "2", "BUSWAY_CONFIG": str(config)}
        settings = load({"port": 3, "nodes": None}, environ).settings
        assert (settings.port, settings.http_port, settings.stores) == (3, 2, 1)
        assert (settings.nodes, settings.config) == (1, config)

    @pytest.mark.parametrize(
        ("word", "memory"), [("1", True), ("true", True), ("YES", True), ("0", False), ("", False)]
    )
    def test_flags_of_the_environment_are_words(self, word: str, memory: bool) -> None:
        assert load({}, {"BUSWAY_MEMORY": word}).settings.memory is memory

    @pytest.mark.parametrize(
        ("flags", "environ", "text"),
        [
            ({"port": 70_000}, {}, "flags: --port is 70000, and must be a whole number from 0"),
            ({"http_port": -1}, {}, "flags: --http-port is -1, and must be"),
            ({"stores": 0}, {}, "flags: --stores is 0, and must be a whole number from 1 to 64."),
            ({}, {"BUSWAY_PORT": "amqp"}, 'environment: BUSWAY_PORT is "amqp", and must be'),
            ({}, {"BUSWAY_MEMORY": "maybe"}, "must be true or false."),
            ({}, {"BUSWAY_HOST": " "}, "must be a text that is not empty."),
            ({"prot": 1}, {}, "flags: unknown key 'prot'. Did you mean 'port'?"),
            ({"config": "/nowhere.toml"}, {}, "/nowhere.toml: there is no such file."),
        ],
    )
    def test_mistakes_are_explained(
        self, flags: dict[str, Any], environ: dict[str, str], text: str
    ) -> None:
        with pytest.raises(ConfigError) as raised:
            load(flags, environ)
        assert text in str(raised.value)

    def test_a_key_is_never_shown(self) -> None:
        assert "0123456789abcdef" not in repr(load({"key": "0123456789abcdef"}, {}))
        with pytest.raises(ConfigError) as raised:
            load({}, {"BUSWAY_KEY": "my secret"})
        assert "secret" not in str(raised.value)

    def test_variables_that_kubernetes_sets_for_a_service_are_not_ours(self) -> None:
        assert load({}, {"BUSWAY_PORT": "tcp://10.0.0.1:5672"}).settings.port == 5672

    def test_other_variables_are_not_ours(self) -> None:
        assert load({}, {"BUSWAY_CODEC": "pure", "PORT": "1"}).settings == Settings()

    def test_parsers_are_imported_when_there_is_something_to_parse(self) -> None:
        """D-33."""
        program = (
            "import sys; from busway.config import load; load({}, {});"
            "print({'tomllib', 'json', 'difflib'} & set(sys.modules))"
        )
        result = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": str(ROOT / "src")},
        )
        assert result.stdout.strip() == "set()"


class TestOurToml:
    def test_declares_queues(self, tmp_path: Path) -> None:
        path = file_with(
            tmp_path,
            """
            [[queues]]
            name = "orders"
            partitioned = true
            lock_duration = "PT30S"
            default_message_time_to_live = "14d"
            max_size_mb = 2048
            max_delivery_count = 5
            dead_lettering_on_message_expiration = true
            status = "SendDisabled"
            user_metadata = "of the shop"

            [[queues]]
            name = "plain"
            """,
        )
        orders, plain = load({"config": path}, {}).queues
        assert orders.queue == Queue(
            path="orders",
            enable_partitioning=True,
            lock_duration_ms=30_000,
            default_ttl_ms=14 * DAY_MS,
            max_size_mb=2048,
            max_delivery_count=5,
            dead_lettering_on_expiration=True,
            status=EntityStatus.SEND_DISABLED,
            user_metadata="of the shop",
        )
        assert (plain.queue, plain.stated) == (Queue(path="plain"), {})

    def test_also_knows_the_names_of_the_python_library(self, tmp_path: Path) -> None:
        path = file_with(
            tmp_path,
            '[[queues]]\nname="q"\nenable_partitioning=true\nmax_size_in_megabytes=3072\n',
        )
        (declared,) = load({"config": path}, {}).queues
        assert declared.stated == {"enable_partitioning": True, "max_size_mb": 3072}

    @pytest.mark.parametrize(
        ("text", "answer"),
        [
            ("[server]", "busway.toml: unknown key 'server'. Did you mean 'serve'?"),
            ("[serve]\nprot = 1", "busway.toml: [serve]: unknown key 'prot'. Did you mean 'port'?"),
            ("serve = 1", "busway.toml: serve is 1, and must be a table, [serve]."),
            ("[serve]\nport = 'x'", 'busway.toml: [serve]: port is "x", and must be a whole numb'),
            ("[queues]\nname = 'q'", "busway.toml: queues is a table, and must be [[queues]]."),
            ("[[queues]]\n", "busway.toml: queue 1: has no name."),
            (
                "[[queues]]\nname = 'q'\nlock_durration = '1m'",
                "busway.toml: queue 'q': unknown key 'lock_durration'. Did you mean "
                "'lock_duration'?",
            ),
            (
                "[[queues]]\nname = 'q'\nxyz = '1m'",
                "busway.toml: queue 'q': unknown key 'xyz'. Known keys are auto_delete_on_idle,",
            ),
            (
                "[[queues]]\nname = 'q'\nlock_duration = 60",
                "busway.toml: queue 'q': lock_duration is 60, and must be a duration such as "
                '"1m" or "PT1M".',
            ),
            (
                "[[queues]]\nname = 'q'\nlock_duration = '1 minute'",
                'lock_duration is "1 minute", and must be a duration',
            ),
            (
                "[[queues]]\nname = 'q'\nlock_duration = '1h'",
                "busway.toml: queue 'q': The queue 'q' cannot have LockDuration=PT1H: it must be "
                "PT5S to PT5M.",
            ),
            (
                "[[queues]]\nname = 'q'\npartitioned = 'yes'",
                "busway.toml: queue 'q': partitioned is \"yes\", and must be true or false.",
            ),
            (
                "[[queues]]\nname = 'q'\nmax_delivery_count = true",
                "max_delivery_count is true, and must be a whole number.",
            ),
            (
                "[[queues]]\nname = 'q'\nstatus = 'off'",
                "must be one of Active, Disabled, SendDisabled, ReceiveDisabled.",
            ),
            (
                "[[queues]]\nname = 'q'\npartitioned = true\nenable_partitioning = true",
                "busway.toml: queue 'q': partitioned and enable_partitioning are the same; give",
            ),
            ("[[queues]]\nname = 'a b'", "busway.toml: queue 'a b': 'a b' is not a valid queue"),
            (
                "[[queues]]\nname = 'q'\n[[queues]]\nname = 'Q'",
                "busway.toml: queue 'Q': is declared twice; the other one is 'q'.",
            ),
            ("[[queues", "busway.toml: is not valid TOML: "),
            ("{", "busway.toml: is not valid JSON: "),
        ],
    )
    def test_mistakes_are_explained(self, tmp_path: Path, text: str, answer: str) -> None:
        assert answer in said(tmp_path, text)

    @pytest.mark.parametrize(
        ("line", "answer"),
        [
            ("requires_session = true", "RequiresSession asks for sessions, which this release"),
            ("requires_duplicate_detection = true", "RequiresDuplicateDetection asks for dup"),
            ("forward_to = 'b'", "ForwardTo asks for forwarding, which this release does not have"),
            ("forward_dead_lettered_messages_to = 'b'", "ForwardDeadLetteredMessagesTo asks for"),
            ("auto_delete_on_idle = '1h'", "AutoDeleteOnIdle asks for deleting idle queues"),
        ],
    )
    def test_what_this_release_does_not_have_is_refused(
        self, tmp_path: Path, line: str, answer: str
    ) -> None:
        assert f"busway.toml: queue 'q': {answer}" in said(
            tmp_path, f"[[queues]]\nname = 'q'\n{line}\n"
        )

    def test_topics_are_refused_by_name(self, tmp_path: Path) -> None:
        text = said(tmp_path, "[[topics]]\nname = 'news'\n")
        assert text == (
            "busway.toml: topics are declared ('news'), which this release does not have yet. "
            "Leave them out."
        )


def emulator(**namespace: Any) -> dict[str, Any]:
    return {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", **namespace}]}}


class TestTheJsonOfTheEmulator:
    def test_declares_queues(self) -> None:
        queues = load({"config": EXAMPLES / "emulator.json"}, {}).queues
        assert [each.queue for each in queues] == [
            Queue(
                path="queue.1",
                default_ttl_ms=3_600_000,
                duplicate_window_ms=20_000,
                max_delivery_count=3,
            ),
            Queue(path="queue.2", lock_duration_ms=30_000),
        ]

    @pytest.mark.parametrize(
        ("document", "answer"),
        [
            ({"UserConfig": []}, "c.json: UserConfig is a list, and must be an object."),
            ({"UserConfig": {"Namespace": []}}, "Did you mean 'Namespaces'?"),
            (
                {"UserConfig": {"Namespaces": [{"Name": "a"}, {"Name": "b"}]}},
                "c.json: 2 namespaces are declared, and there is one.",
            ),
            (emulator(Queues=[{}]), "c.json: queue 1: has no Name."),
            (
                emulator(Queues=[{"Name": "q", "Properties": {"LockDuratoin": "PT1M"}}]),
                "c.json: queue 'q': unknown key 'LockDuratoin'. Did you mean 'LockDuration'?",
            ),
            (
                emulator(Queues=[{"Name": "q", "Properties": {"LockDuration": "1m"}}]),
                'c.json: queue \'q\': LockDuration is "1m", and must be a duration such as "PT1M".',
            ),
            (
                emulator(Queues=[{"Name": "q", "Properties": {"RequiresSession": True}}]),
                "c.json: queue 'q': RequiresSession asks for sessions",
            ),
            (
                emulator(
                    Topics=[
                        {"Name": "topic.1", "Properties": {}, "Subscriptions": [{"Name": "s"}]},
                    ]
                ),
                "c.json: topics are declared ('topic.1'), which this release does not have yet.",
            ),
        ],
    )
    def test_mistakes_are_explained(self, document: dict[str, Any], answer: str) -> None:
        with pytest.raises(ConfigError) as raised:
            read_entities(document, "c.json")
        assert answer in str(raised.value)

    def test_no_topics_is_fine(self) -> None:
        assert read_entities(emulator(Queues=[], Topics=[]), "c.json") == ()


class TestRoundTrips:
    queues = st.builds(
        Queue,
        path=st.just("orders"),
        enable_partitioning=st.booleans(),
        lock_duration_ms=st.integers(5_000, 300_000),
        max_delivery_count=st.integers(1, 2000),
        default_ttl_ms=st.none() | st.integers(1, 10**12),
        dead_lettering_on_expiration=st.booleans(),
        max_size_mb=st.sampled_from([1024, 2048, 3072, 4096, 5120]),
        duplicate_window_ms=st.integers(20_000, 7 * DAY_MS),
        status=st.sampled_from(EntityStatus),
        user_metadata=st.none()
        | st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1),
    )

    @staticmethod
    def written(row: Any, value: Any) -> Any:
        match row.kind:
            case Kind.SPAN:
                return format_iso(value)
            case Kind.STATUS:
                return show(row, value)
            case Kind.TEXT | Kind.PATH:
                return value or ""
        return value

    @given(queues)
    def test_what_the_service_would_write_reads_back(self, queue: Queue) -> None:
        properties = {
            wire: self.written(row, getattr(queue, row.field))
            for wire, row in EMULATOR_ROWS.items()
        }
        document = json.loads(
            json.dumps(emulator(Queues=[{"Name": "orders", "Properties": properties}]))
        )
        (declared,) = read_entities(document, "c.json")
        assert declared.queue == queue

    @given(queues)
    def test_our_own_names_read_back(self, queue: Queue) -> None:
        import tomllib

        lines = ["[[queues]]", 'name = "orders"']
        for name, row in TOML_ROWS.items():
            if name == row.names[0]:
                value = json.dumps(self.written(row, getattr(queue, row.field)))
                lines.append(f"{name} = {value}")
        (declared,) = read_entities(tomllib.loads("\n".join(lines)), "busway.toml")
        assert declared.queue == queue


class TestExamples:
    def test_the_tour_has_a_conventional_and_a_partitioned_queue(self) -> None:
        queues = [each.queue for each in load({"config": EXAMPLES / "tour.toml"}, {}).queues]
        assert [(queue.path, queue.partitions) for queue in queues] == [
            ("orders", 1),
            ("orders-partitioned", 16),
        ]

    def test_every_key_is_in_the_reference(self) -> None:
        reference = (ROOT / "docs" / "reference" / "configuration.md").read_text()
        for name in (row.names[0] for row in TOML_ROWS.values()):
            assert f"`{name}`" in reference, name
        for name in ("data", "host", "port", "http_port", "stores", "nodes", "key", "memory"):
            assert f"`BUSWAY_{name.upper()}`" in reference, name


def test_a_declared_queue_keeps_what_was_stated() -> None:
    declared = DeclaredQueue("f: queue 'q'", "q", {"max_delivery_count": 3})
    assert declared.queue == Queue(path="q", max_delivery_count=3)
