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

from busway.amqp.types import Timestamp
from busway.config import ConfigError, Declared, Settings, load
from busway.config.entities import emulator_rows, toml_rows
from busway.config.namespaces import DeclaredNamespace, read_namespaces
from busway.config.rules import TOML_CONDITIONS
from busway.config.rules import TOML_KEYS as RULE_KEYS
from busway.model.durations import DAY_MS, format_iso
from busway.model.entities import (
    AuthorizationRule,
    CorrelationFilter,
    EntityStatus,
    Queue,
    Rule,
    SqlFilter,
    Subscription,
    Topic,
    TrueFilter,
)
from busway.model.limits import Tier
from busway.model.properties import Kind, show

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


def file_with(tmp_path: Path, text: str, name: str = "busway.toml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def read_entities(document: dict[str, Any], file: str) -> tuple[Declared, ...]:
    """Those of the default namespace, where there is no other one."""
    (namespace,) = read_namespaces(document, file, DeclaredNamespace(name="busway"))
    return namespace.entities


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
            tls_port=5671,
            https_port=443,
            tls=False,
            tls_cert=None,
            tls_key=None,
            stores=2,
            nodes=1,
            key=None,
            tier=None,
            namespace_partitions=None,
            config=None,
            memory=False,
            metrics="token",
            metrics_entities=1_000,
            otel=False,
            allow_faults=False,
            allow_clock=False,
        )

    def test_flags_go_before_environment_before_file_before_defaults(self, tmp_path: Path) -> None:
        config = file_with(tmp_path, "[serve]\nport = 1\nhttp_port = 1\nstores = 1\n")
        environ = {"BUSWAY_PORT": "2", "BUSWAY_HTTP_PORT": "2", "BUSWAY_CONFIG": str(config)}
        settings = load({"port": 3, "nodes": None}, environ).settings
        assert (settings.port, settings.http_port, settings.stores) == (3, 2, 1)
        assert (settings.nodes, settings.config) == (1, config)

    @pytest.mark.parametrize("word", ["off", "OFF", False])
    def test_ports_beside_the_first_can_be_off(self, word: object) -> None:
        names = ("http_port", "tls_port", "https_port")
        settings = load(dict.fromkeys(names, word), {}).settings
        assert [getattr(settings, name) for name in names] == [None, None, None]
        with pytest.raises(ConfigError, match="--port is"):
            load({"port": word}, {})

    def test_what_somebody_wrote_down_is_told_from_defaults(self, tmp_path: Path) -> None:
        config = file_with(tmp_path, "[serve]\nport = 5672\n")
        chosen = load({"config": config, "data": None}, {"BUSWAY_HTTP_PORT": "5300"}).chosen
        assert chosen == {"config", "port", "http_port"}

    def test_tls_files_are_paths(self) -> None:
        settings = load({}, {"BUSWAY_TLS_CERT": "a.pem", "BUSWAY_TLS_KEY": "a.key"}).settings
        assert (settings.tls_cert, settings.tls_key) == (Path("a.pem"), Path("a.key"))

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
            ({"metrics": "all"}, {}, '--metrics is "all", and must be token or open'),
            ({}, {"BUSWAY_ALLOW_FAULTS": "maybe"}, 'BUSWAY_ALLOW_FAULTS is "maybe"'),
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
        orders, plain = load({"config": path}, {}).entities
        assert orders.entity == Queue(
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
        assert (plain.entity, plain.stated) == (Queue(path="plain"), {})

    def test_also_knows_the_names_of_the_python_library(self, tmp_path: Path) -> None:
        path = file_with(
            tmp_path,
            '[[queues]]\nname="q"\nenable_partitioning=true\nmax_size_in_megabytes=3072\n',
        )
        (declared,) = load({"config": path}, {}).entities
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

    def test_declares_what_queues_can_do(self, tmp_path: Path) -> None:
        """SES-1, DUP-1, FWD-1, DLQ-4, STA-4."""
        path = file_with(
            tmp_path,
            """
            [[queues]]
            name = "a"
            requires_session = true
            requires_duplicate_detection = true
            duplicate_detection_history_time_window = "1h"
            forward_dead_lettered_messages_to = "c"
            auto_delete_on_idle = "1h"

            [[queues]]
            name = "b"
            forward_to = "c"
            """,
        )
        first, second = load({"config": path}, {}).entities
        assert first.entity == Queue(
            path="a",
            requires_session=True,
            requires_duplicate_detection=True,
            duplicate_window_ms=3_600_000,
            forward_dead_letters_to="c",
            auto_delete_on_idle_ms=3_600_000,
        )
        assert second.stated == {"forward_to": "c"}

    def test_declares_topics_with_subscriptions_and_rules(self, tmp_path: Path) -> None:
        """RUL-1, COR-1."""
        path = file_with(
            tmp_path,
            """
            [[topics]]
            name = "events"
            partitioned = true
            requires_duplicate_detection = true

            [[topics.subscriptions]]
            name = "all"

            [[topics.subscriptions]]
            name = "some"
            requires_session = true
            dead_lettering_on_filter_evaluation_exceptions = false

            [[topics.subscriptions.rules]]
            name = "sql"
            sql_filter = "amount > 100"
            action = "SET large = TRUE"

            [[topics.subscriptions.rules]]
            name = "correlation"
            correlation_filter.label = "order"
            correlation_filter.properties = { n = 3, since = 2024-01-02T00:00:00Z }

            [[topics.subscriptions.rules]]
            name = "$Default"
            """,
        )
        topic, everything, some = load({"config": path}, {}).entities
        assert topic.entity == Topic(
            path="events",
            enable_partitioning=True,
            requires_duplicate_detection=True,
            support_ordering=False,
        )
        assert everything.entity == Subscription(topic="events", name="all")
        assert everything.rules is None
        assert some.where.endswith("topic 'events', subscription 'some'")
        assert some.stated == {"requires_session": True, "dead_lettering_on_filter_errors": False}
        since = Timestamp(1_704_153_600_000)
        assert some.rules == (
            Rule(name="sql", filter=SqlFilter("amount > 100"), action="SET large = TRUE"),
            Rule(
                name="correlation",
                filter=CorrelationFilter(label="order", properties={"n": 3, "since": since}),
            ),
            Rule(name="$Default", filter=TrueFilter()),
        )

    @pytest.mark.parametrize(
        ("rule", "answer"),
        [
            ("", "rule 1: has no name."),
            ("name = 'r'\nsql = '1=1'", "rule 'r': unknown key 'sql'."),
            ("name = 'r'\nsql_filter = 5", "rule 'r': sql_filter is 5, and must be text."),
            (
                "name = 'r'\nsql_filter = 'a ='",
                "rule 'r': The SQL filter of the rule 'r' is not valid.",
            ),
            (
                "name = 'r'\naction = 'SET'",
                "rule 'r': The SQL action of the rule 'r' is not valid.",
            ),
            ("name = 'a b'", "rule 'a b': 'a b' is not a valid rule name"),
            (
                "name = 'r'\nsql_filter = 'a = 1'\ncorrelation_filter.label = 'x'",
                "rule 'r': has sql_filter and correlation_filter; give one.",
            ),
            ("name = 'r'\ncorrelation_filter = {}", "it has no condition"),
            ("name = 'r'\ncorrelation_filter = 'x'", 'correlation_filter is "x", and must be an'),
            ("name = 'r'\ncorrelation_filter.lable = 'x'", "Did you mean 'label'?"),
            ("name = 'r'\ncorrelation_filter.label = 5", "label is 5, and must be text."),
            (
                "name = 'r'\ncorrelation_filter.properties = { a = [] }",
                "properties.a is a list, and must be a text, a number, true, false or a date",
            ),
            (
                "name = 'r'\n[[topics.subscriptions.rules]]\nname = 'R'",
                "rule 'R': is declared twice.",
            ),
        ],
    )
    def test_mistakes_in_rules_are_explained(self, tmp_path: Path, rule: str, answer: str) -> None:
        """SQL-11, COR-3."""
        text = said(
            tmp_path,
            "[[topics]]\nname = 't'\n[[topics.subscriptions]]\nname = 's'\n"
            f"[[topics.subscriptions.rules]]\n{rule}\n",
        )
        assert text.startswith("busway.toml: topic 't', subscription 's', rule ")
        assert answer in text

    @pytest.mark.parametrize(
        ("text", "answer"),
        [
            ("[topics]\nname = 't'", "busway.toml: topics is a table, and must be [[topics]]."),
            (
                "[[topics]]\nname = 't'\nsubscriptions = 5",
                "busway.toml: topic 't': subscriptions is 5, and must be [[topics.subscriptions]].",
            ),
            (
                "[[topics]]\nname = 't'\nlock_duration = '1m'",
                "busway.toml: topic 't': unknown key 'lock_duration'.",
            ),
            (
                "[[queues]]\nname = 't'\n[[topics]]\nname = 'T'",
                "busway.toml: topic 'T': is declared twice; the other one is 't'.",
            ),
            (
                "[[topics]]\nname = 't'\n[[topics.subscriptions]]\nname = 's'\n"
                "[[topics.subscriptions]]\nname = 'S'",
                "busway.toml: topic 't', subscription 'S': is declared twice;",
            ),
            (
                "[[topics]]\nname = 't'\n[[topics.subscriptions]]\nname = 's'\n"
                "status = 'SendDisabled'",
                "topic 't', subscription 's': The subscription 't/Subscriptions/s' cannot have",
            ),
            (
                "[[queues]]\nname = 'q'\nenable_express = true\n"
                "requires_duplicate_detection = true",
                "busway.toml: queue 'q': The queue 'q' cannot have EnableExpress=true: it cannot",
            ),
        ],
    )
    def test_mistakes_in_topics_are_explained(self, tmp_path: Path, text: str, answer: str) -> None:
        assert answer in said(tmp_path, text)


def emulator(**namespace: Any) -> dict[str, Any]:
    return {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", **namespace}]}}


def with_rule(**properties: Any) -> dict[str, Any]:
    rule = {"Name": "r", "Properties": properties}
    return emulator(Topics=[{"Name": "t", "Subscriptions": [{"Name": "s", "Rules": [rule]}]}])


class TestTheJsonOfTheEmulator:
    def test_declares_queues(self) -> None:
        entities = load({"config": EXAMPLES / "emulator.json"}, {}).entities
        assert [each.entity for each in entities[:2]] == [
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
                {"UserConfig": {"Namespaces": [{"Name": "a"}, {"Name": "b.c"}]}},
                "c.json: namespace 'b.c': 'b.c' is not a valid namespace name",
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
            (emulator(Topics=[{}]), "c.json: topic 1: has no Name."),
            (
                emulator(Topics=[{"Name": "t", "Subscriptions": [{}]}]),
                "c.json: topic 't', subscription 1: has no Name.",
            ),
            (
                emulator(Topics=[{"Name": "t", "Subscription": []}]),
                "c.json: topic 't': unknown key 'Subscription'. Did you mean 'Subscriptions'?",
            ),
            (
                emulator(Topics=[{"Name": "t", "Properties": {"LockDuration": "PT1M"}}]),
                "c.json: topic 't': unknown key 'LockDuration'.",
            ),
            (with_rule(FilterType="Regex"), 'FilterType is "Regex", and must be Sql or Correl'),
            (
                with_rule(FilterType="Sql"),
                "c.json: topic 't', subscription 's', rule 'r': FilterType is Sql, and SqlFilter "
                "is missing.",
            ),
            (
                with_rule(SqlFilter={"SqlExpression": "1=1"}, CorrelationFilter={"Label": "x"}),
                "has SqlFilter and CorrelationFilter; say which by FilterType.",
            ),
            (with_rule(SqlFilter={"SqlExpresion": ""}), "Did you mean 'SqlExpression'?"),
            (with_rule(CorrelationFilter={"Lable": "x"}), "rule 'r': unknown key 'Lable'."),
            (with_rule(FilterType="Correlation", CorrelationFilter={}), "it has no condition"),
            (with_rule(SqlFilter={"SqlExpression": ""}), "The SQL filter of the rule 'r' is not"),
            (with_rule(Action={"SqlExpression": 5}), "Action: SqlExpression is 5, and must be te"),
        ],
    )
    def test_mistakes_are_explained(self, document: dict[str, Any], answer: str) -> None:
        with pytest.raises(ConfigError) as raised:
            read_entities(document, "c.json")
        assert answer in str(raised.value)

    def test_no_topics_is_fine(self) -> None:
        assert read_entities(emulator(Queues=[], Topics=[]), "c.json") == ()
        assert read_entities(emulator(Queues=None, Topics=None), "c.json") == ()

    def test_declares_topics_with_subscriptions_and_rules(self) -> None:
        """RUL-1, COR-1."""
        *_, topic, first, second, third = load({"config": EXAMPLES / "emulator.json"}, {}).entities
        assert topic.entity == Topic(
            path="topic.1", default_ttl_ms=3_600_000, duplicate_window_ms=20_000
        )
        assert first.entity == Subscription(
            topic="topic.1", name="subscription.1", default_ttl_ms=3_600_000, max_delivery_count=3
        )
        of_the_shop = CorrelationFilter(
            content_type="application/json", label="order", properties={"shop": "berlin"}
        )
        assert first.rules == (Rule(name="of-the-shop", filter=of_the_shop),)
        assert second.stated == {"forward_to": "queue.2"}
        assert second.rules == (
            Rule(name="large", filter=SqlFilter("amount > 100"), action="SET sys.To = 'large'"),
        )
        assert (third.stated, third.rules) == ({}, None)

    def test_a_rule_without_a_filter_lets_everything_in(self) -> None:
        _, subscription = read_entities(with_rule(), "c.json")
        assert subscription.rules == (Rule(name="r", filter=TrueFilter()),)

    def test_what_templates_of_the_service_say_beside_an_expression_is_passed_over(self) -> None:
        document = with_rule(SqlFilter={"SqlExpression": "a = 1", "CompatibilityLevel": 20})
        _, subscription = read_entities(document, "c.json")
        assert subscription.rules == (Rule(name="r", filter=SqlFilter("a = 1")),)


class TestNamespaces:
    TWO = """
        [serve]
        tier = "basic"

        [[queues]]
        name = "orders"

        [[access]]
        name = "app"
        rights = ["listen", "Send"]
        key = "the-key-of-the-application"

        [namespaces.contoso]
        tier = "Premium"
        namespace_partitions = 2
        hosts = ["127.0.0.2", "bus.contoso.example"]
        key = "the-root-key-of-contoso"

        [[namespaces.contoso.queues]]
        name = "large"
        max_size_mb = 81920

        [[namespaces.contoso.topics]]
        name = "events"
        [[namespaces.contoso.topics.subscriptions]]
        name = "audit"

        [[namespaces.contoso.access]]
        name = "all"
        rights = ["Manage", "Send", "Listen"]
        key = "the-key-of-all-of-contoso"
        secondary_key = "the-other-key-of-contoso"
    """

    def test_have_the_tables_of_the_default_one(self, tmp_path: Path) -> None:
        default, contoso = load({"config": file_with(tmp_path, self.TWO)}, {}).namespaces
        assert (default.name, default.tier, default.partitions) == ("busway", Tier.BASIC, None)
        assert [each.path for each in default.entities] == ["orders"]
        assert default.access == (
            AuthorizationRule("app", ("Send", "Listen"), "the-key-of-the-application"),
        )
        assert (contoso.name, contoso.tier, contoso.partitions) == ("contoso", Tier.PREMIUM, 2)
        assert contoso.hosts == ("127.0.0.2", "bus.contoso.example")
        assert contoso.key == "the-root-key-of-contoso"
        assert [each.path for each in contoso.entities] == [
            "large",
            "events",
            "events/Subscriptions/audit",
        ]
        (rule,) = contoso.access
        assert (rule.primary_key, rule.secondary_key) == (
            "the-key-of-all-of-contoso",
            "the-other-key-of-contoso",
        )

    def test_keys_are_not_shown(self, tmp_path: Path) -> None:
        assert "the-" not in repr(load({"config": file_with(tmp_path, self.TWO)}, {}))

    def test_the_first_of_the_emulator_is_the_default_one(self, tmp_path: Path) -> None:
        document = {
            "UserConfig": {
                "Namespaces": [
                    {"Name": "sbemulatorns", "Queues": [{"Name": "a"}]},
                    {"Name": "other", "Queues": [{"Name": "b"}]},
                ]
            }
        }
        path = file_with(tmp_path, json.dumps(document), "c.json")
        namespaces = load({"config": path, "key": "a-key-of-sixteen"}, {}).namespaces
        assert [(each.name, each.key) for each in namespaces] == [
            ("busway", "a-key-of-sixteen"),
            ("other", None),
        ]
        assert [each.entities[0].path for each in namespaces] == ["a", "b"]

    def test_flags_are_of_the_default_one(self) -> None:
        (default,) = load({"tier": "PREMIUM"}, {"BUSWAY_NAMESPACE_PARTITIONS": "4"}).namespaces
        assert (default.tier, default.partitions) == (Tier.PREMIUM, 4)

    def test_what_some_tier_allows_is_left_to_the_catalog(self, tmp_path: Path) -> None:
        """A premium namespace need not say so at every start."""
        text = "[[queues]]\nname = 'q'\nmax_size_mb = 10240"
        assert load({"config": file_with(tmp_path, text)}, {}).entities
        assert "it may be 1024" in said(tmp_path, f"[serve]\ntier = 'standard'\n{text}")

    @pytest.mark.parametrize(
        ("text", "answer"),
        [
            ("[serve]\ntier = 'gold'", '[serve]: tier is "gold", and must be basic, standard or'),
            (
                "[serve]\nnamespace_partitions = 3",
                "[serve]: namespace_partitions is 3, and must be 1, 2 or 4.",
            ),
            ("[namespaces]\ncontoso = 5", "namespace 'contoso': must be a table, [namespaces."),
            ("[namespaces.contoso]\nqueue = 5", "contoso': unknown key 'queue'. Did you mean"),
            ("[namespaces.busway]", "namespace 'busway': is the default one."),
            ("[namespaces.Contoso]\n[namespaces.contoso]", "'contoso': is declared twice."),
            ("[namespaces.'a.b']", "'a.b' is not a valid namespace name"),
            ("[namespaces.localhost]", "that name means the default namespace"),
            ("[namespaces.contoso]\nhosts = 'x'", 'hosts is "x", and must be a list of names'),
            (
                "[namespaces.a]\nhosts = ['x']\n[namespaces.b]\nhosts = ['X']",
                "the host 'X' of the namespace 'b' means the namespace 'a' already.",
            ),
            ("[namespaces.contoso]\nkey = 'short'", "key must be one word of at least 16"),
            ("[[access]]\nrights = ['Send']", "access rule 1: has no name."),
            ("[[access]]\nname = 'a'\nrights = ['Send']", "access rule 'a': has no key."),
            (
                "[[access]]\nname = 'a'\nkey = 'a-key-of-sixteen'\nrights = 'Send'",
                'rights is "Send", and must be a list such as ["Send", "Listen"].',
            ),
            (
                "[[access]]\nname = 'a'\nkey = 'a-key-of-sixteen'\nrights = ['Write']",
                "has some of the rights Manage, Send, Listen, and no others.",
            ),
            (
                "[[access]]\nname = 'a'\nkey = 'a-key-of-sixteen'\nrights = ['Manage']",
                "has the right Manage, which needs Send and Listen as well.",
            ),
            (
                "[[namespaces.contoso.queues]]\nname = 'q'\nlock_duration = '1h'",
                "busway.toml: namespace 'contoso': queue 'q': ",
            ),
        ],
    )
    def test_mistakes_are_explained(self, tmp_path: Path, text: str, answer: str) -> None:
        assert answer in said(tmp_path, text)


class TestRoundTrips:
    queues = st.builds(
        Queue,
        path=st.just("orders"),
        enable_partitioning=st.booleans(),
        lock_duration_ms=st.integers(5_000, 300_000),
        max_delivery_count=st.integers(1, 2**31 - 1),
        default_ttl_ms=st.none() | st.integers(1, 10**12),
        dead_lettering_on_expiration=st.booleans(),
        max_size_mb=st.sampled_from([1024, 2048, 3072, 4096, 5120]),
        max_message_size_kb=st.just(256),
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
            for wire, row in emulator_rows(Queue).items()
        }
        document = json.loads(
            json.dumps(emulator(Queues=[{"Name": "orders", "Properties": properties}]))
        )
        (declared,) = read_entities(document, "c.json")
        assert declared.entity == queue

    @given(queues)
    def test_our_own_names_read_back(self, queue: Queue) -> None:
        import tomllib

        lines = ["[[queues]]", 'name = "orders"']
        for name, row in toml_rows(Queue).items():
            if name == row.names[0]:
                value = json.dumps(self.written(row, getattr(queue, row.field)))
                lines.append(f"{name} = {value}")
        (declared,) = read_entities(tomllib.loads("\n".join(lines)), "busway.toml")
        assert declared.entity == queue


class TestExamples:
    def test_the_tour_has_one_of_each_kind(self) -> None:
        declared = load({"config": EXAMPLES / "tour.toml"}, {}).entities
        assert [
            (each.path, getattr(each.entity, "partitions", None), each.rules is not None)
            for each in declared
        ] == [
            ("orders", 1, False),
            ("orders-partitioned", 16, False),
            ("orders-sessions", 16, False),
            ("events", 16, False),
            ("events/Subscriptions/audit", None, False),
            ("events/Subscriptions/large-orders", None, True),
        ]
        sessions = declared[2].entity
        assert isinstance(sessions, Queue)
        assert sessions.requires_session

    def test_every_key_is_in_the_reference(self) -> None:
        reference = (ROOT / "docs" / "reference" / "configuration.md").read_text()
        for entity_class in (Queue, Topic, Subscription):
            for name in (row.names[0] for row in toml_rows(entity_class).values()):
                assert f"`{name}`" in reference, name
        for name in (*RULE_KEYS, *TOML_CONDITIONS):
            assert f"`{name}`" in reference, name
        operations = ("metrics", "metrics_entities", "allow_faults", "allow_clock")
        for name in (
            *("data", "host", "port", "http_port", "stores", "nodes", "key", "memory"),
            *operations,
        ):
            assert f"`BUSWAY_{name.upper()}`" in reference, name
