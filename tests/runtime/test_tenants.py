"""The namespaces of a node: from the configuration into the catalog, start after start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from busway.cluster.catalog import Catalog
from busway.config import load
from busway.model.entities import ROOT_RULE_NAME
from busway.runtime.data_folder import StartError
from busway.runtime.node import Node

FIRST = """
[[queues]]
name = "orders"

[namespaces.contoso]
[[namespaces.contoso.queues]]
name = "orders"
[[namespaces.contoso.access]]
name = "app"
rights = ["Send"]
key = "the-first-key-of-the-app"
"""

Start = Callable[[str], Awaitable[Node]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    running: list[Node] = []

    async def start_node(config: str) -> Node:
        for node in running:
            await node.stop()
        running.clear()
        file = tmp_path / "busway.toml"
        file.write_text(config)
        node = Node(load({"data": tmp_path / "data", "port": 0, "config": file}, {}))
        running.append(node)
        await node.start()
        return node

    yield start_node
    for node in running:
        await node.stop()


def catalog_of(node: Node, host: str) -> Catalog:
    assert node.namespaces is not None
    return node.namespaces.gateway_of(host).catalog


async def test_each_has_what_the_file_gives_it(start: Start) -> None:
    node = await start(FIRST)
    contoso = catalog_of(node, "contoso.localhost")
    assert contoso.find("orders") != catalog_of(node, "localhost").find("orders")
    rule = contoso.namespace_rule("app")
    assert rule is not None
    assert catalog_of(node, "localhost").namespace_rule("app") is None
    root = contoso.namespace_rule(ROOT_RULE_NAME)
    assert root is not None
    assert f"SharedAccessKey={root.primary_key};" in node.connection_strings["contoso"]


async def test_a_second_start_changes_nothing_but_what_the_file_changes(start: Start) -> None:
    before = catalog_of(await start(FIRST), "contoso").namespace
    assert catalog_of(await start(FIRST), "contoso").namespace == before
    node = await start(FIRST.replace("the-first-key", "the-second-key"))
    after = catalog_of(node, "contoso").namespace
    assert [rule.primary_key for rule in after.authorization_rules] == [
        before.authorization_rules[0].primary_key,
        "the-second-key-of-the-app",
    ]


async def test_keys_of_the_root_rule_are_changed_in_the_data_folder(
    start: Start, tmp_path: Path
) -> None:
    """D-34: two keys, so that the old one goes on opening until it is taken away."""
    await start(FIRST)
    for host, name in (("localhost", "root.key"), ("contoso", "root.contoso.key")):
        file = tmp_path / "data" / name
        old = file.read_text().strip()
        file.write_text(f"a-new-key-of-{host}\n{old}\n")
        rule = catalog_of(await start(FIRST), host).namespace_rule(ROOT_RULE_NAME)
        assert rule is not None
        assert (rule.primary_key, rule.secondary_key) == (f"a-new-key-of-{host}", old)


async def test_a_mistake_in_one_changes_nothing_in_another(start: Start) -> None:
    await start(FIRST)
    wrong = FIRST.replace(
        '[[namespaces.contoso.queues]]\nname = "orders"',
        '[[namespaces.contoso.queues]]\nname = "orders"\npartitioned = true',
    )
    with pytest.raises(StartError, match="namespace 'contoso': queue 'orders': EnablePartition"):
        await start('[[queues]]\nname = "more"\n' + wrong)
    assert catalog_of(await start(FIRST), "localhost").find("more") is None


@pytest.mark.parametrize(
    ("tier", "table", "said"),
    [
        ("basic", "[[topics]]\nname = 't'", "the tier Basic has no topics"),
        ("basic", "[[queues]]\nname = 'q'\nrequires_session = true", "the tier of the namespace"),
        ("standard", "[[queues]]\nname = 'q'\nmax_size_mb = 10240", "it may be 1024"),
    ],
)
async def test_p12_a_file_is_held_to_the_tier_that_the_namespace_has(
    start: Start, tier: str, table: str, said: str
) -> None:
    """Also where the file does not say which that is."""
    await start(f"[serve]\ntier = '{tier}'")
    with pytest.raises(StartError, match=said):
        await start(f"[[queues]]\nname = 'first'\n{table}")
    assert catalog_of(await start(""), "localhost").find("first") is None
