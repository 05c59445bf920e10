"""What operators install: the unit, the alert rules and the dashboard name what is there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient

from busway.testing import Bus, Server
from tests.http.asking import ask, manager
from tests.testing.test_clock import send

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = DEPLOY / "grafana" / "busway.json"
METRIC = re.compile(r"\b(?:busway|process)_[a-z0-9_]+")


def metrics_named(text: str) -> set[str]:
    return set(METRIC.findall(text))


@pytest.fixture(scope="module")
def metrics() -> tuple[set[str], set[str]]:
    """Names of samples of a real server with some traffic, and of their labels."""
    with Server("orders", partitioned=["parts"]) as server:
        send(Bus(server), "orders")
        send(Bus(server), "parts")
        with (
            ServiceBusClient.from_connection_string(server.connection_string) as client,
            client.get_queue_receiver("orders"),
        ):
            text = ask(server, "GET", "/metrics", token=manager(server)).text
    samples = [line for line in text.splitlines() if line and not line.startswith("#")]
    declared = re.findall(r"^# TYPE (\S+) (counter|gauge|histogram)", text, re.MULTILINE)
    names = {METRIC.match(line)[0] for line in samples if METRIC.match(line)}  # type: ignore[index]
    # A family that has no series at the moment is there all the same.
    return names | {name for name, _ in declared}, set(re.findall(r"[{,](\w+)=", "".join(samples)))


def test_every_metric_of_the_alerts_is_there(metrics: tuple[set[str], set[str]]) -> None:
    named = {each for line in expressions() for each in metrics_named(line)}
    assert len(named) > 10
    assert named <= metrics[0]


def expressions() -> list[str]:
    return re.findall(r"^        expr: (.*)$", ALERTS.read_text(), re.MULTILINE)


def test_every_metric_and_label_of_the_dashboard_is_there(
    metrics: tuple[set[str], set[str]],
) -> None:
    text = DASHBOARD.read_text()
    named = metrics_named(text)
    assert len(named) > 15
    assert named <= metrics[0]
    legends = set(re.findall(r"{{(\w+)}}", text))
    assert legends <= metrics[1]


def test_an_alert_says_what_it_means() -> None:
    text = ALERTS.read_text()
    rules = re.split(r"^      - alert: ", text, flags=re.MULTILINE)[1:]
    assert len(rules) == len(expressions())
    for rule in rules:
        assert re.match(r"Busway[A-Z]\w+\n", rule)
        assert re.search(r"severity: (critical|warning)", rule)
        assert "summary: " in rule
        assert "description: " in rule


def promtool() -> str:
    """From the environment ('make promtool' puts it there) or the machine."""
    found = shutil.which("promtool", path=str(Path(sys.executable).parent)) or shutil.which(
        "promtool"
    )
    if found is None:
        pytest.skip("promtool is not there and could not be had; see 'make promtool'")
    return found


@pytest.mark.parametrize("what", [["check", "alerts.yml"], ["test", "alerts_test.yml"]])
def test_promtool_agrees(what: list[str]) -> None:
    verb, file = what
    done = subprocess.run(
        [promtool(), verb, "rules", file],
        cwd=ALERTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    groups = "groups:\n- name: dashboard\n  rules:\n"
    for number, target in enumerate(targets()):
        expression = target["expr"].replace("$__rate_interval", "5m")
        expression = re.sub(r"\$\w+", ".*", expression)
        groups += f"  - record: 'dashboard:{number}'\n    expr: {json.dumps(expression)}\n"
    (tmp_path / "dashboard.yml").write_text(groups)
    done = subprocess.run(
        [promtool(), "check", "rules", str(tmp_path / "dashboard.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def panels() -> list[dict[str, Any]]:
    return list(json.loads(DASHBOARD.read_text())["panels"])


def targets() -> list[dict[str, str]]:
    return [target for panel in panels() for target in panel["targets"]]


def test_the_dashboard_is_one_that_grafana_shows() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= set(dashboard)
    variables = {each["name"] for each in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text())) - {"__rate_interval", "__all"}
    assert used == variables
    assert len({panel["id"] for panel in panels()}) == len(panels())
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        assert {"title", "type", "targets", "gridPos", "datasource"} <= set(panel)
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} lies over another panel"
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not there")
    text = (DEPLOY / "systemd" / "busway.service").read_text()
    command = str(Path(sys.executable).with_name("busway"))
    assert text.count("/opt/busway/bin/busway") == 1
    unit = tmp_path / "busway.service"
    # What it names must be there for this, and a user of that name is not.
    text = text.replace("/opt/busway/bin/busway", command)
    text = re.sub(r"^(User|Group)=.*\n", "", text, flags=re.MULTILINE)
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    about_us = [line for line in done.stderr.splitlines() if "busway" in line]
    assert about_us == []


def test_the_unit_starts_what_the_command_line_takes() -> None:
    from typer.testing import CliRunner

    from busway.cli import app

    text = (DEPLOY / "systemd" / "busway.service").read_text()
    (words,) = re.findall(r"^ExecStart=\S+ (.*)$", text, re.MULTILINE)
    assert CliRunner().invoke(app, [*words.split(), "--help"]).exit_code == 0
