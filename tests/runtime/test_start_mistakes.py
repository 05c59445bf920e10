"""What is wrong with files at start is said in a sentence, and never by a traceback."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from busway.testing import Server
from tests.runtime.test_serve import refused, serve

CONFIG = """
[[queues]]
name = "orders"

[[topics]]
name = "news"

[[topics.subscriptions]]
name = "all"
"""
DAMAGE = {
    "an entity that is no JSON": (
        "UPDATE entities SET description = substr(description, 9) WHERE path = 'orders'",
        "the description of the queue 'orders' cannot be read",
    ),
    "an entity with other types": (
        """UPDATE entities SET description = '{"placement": 5}' WHERE path = 'orders'""",
        "the description of the queue 'orders' cannot be read",
    ),
    "an entity that is a list": (
        "UPDATE entities SET description = '[]' WHERE path = 'orders'",
        "the description of the queue 'orders' cannot be read",
    ),
    "an entity that is nested deeply": (
        f"UPDATE entities SET description = '{'[' * 100_000}' WHERE path = 'orders'",
        "the description of the queue 'orders' cannot be read",
    ),
    "an unknown kind": (
        "UPDATE entities SET kind = 'quaue' WHERE path = 'orders'",
        "the description of the quaue 'orders' cannot be read",
    ),
    "a namespace": (
        "UPDATE namespaces SET description = 'x'",
        "the description of the namespace 'busway' cannot be read",
    ),
    "a rule": (
        "UPDATE rules SET description = '{}'",
        "the description of a rule of 'news/Subscriptions/all' cannot be read",
    ),
    "an entity with another value": (
        "UPDATE entities SET description = replace(description, '_count\":10', '_count\":11')"
        " WHERE path = 'orders'",
        "the row of the queue 'orders' is not what was written. Put back a backup",
    ),
    "an entity with another name": (
        "UPDATE entities SET path = 'Orders' WHERE path = 'orders'",
        "the row of the queue 'Orders' is not what was written",
    ),
    "an entity with another incarnation": (
        "UPDATE entities SET incarnation = incarnation + 1 WHERE path = 'orders'",
        "the row of the queue 'orders' is not what was written",
    ),
    "a rule with another name": (
        "UPDATE rules SET name_key = 'other'",
        "the row of the rule 'other' of 'news/Subscriptions/all' is not what was written",
    ),
    "text that is none": (
        "UPDATE entities SET path = CAST(x'ff' AS TEXT) WHERE path = 'orders'",
        "cannot be read",
    ),
    "a table that is gone": ("DROP TABLE rules", "cannot be read: no such table"),
}


@pytest.mark.parametrize(("statement", "told"), DAMAGE.values(), ids=DAMAGE)
def test_damage_in_the_catalog_is_named(tmp_path: Path, statement: str, told: str) -> None:
    with Server(config=CONFIG, data=tmp_path) as server:
        server.stop()
        database = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
        before = database.serialize()
        database.execute(statement)
        assert database.serialize() != before  # else there is no damage to be named
        database.close()
        said = refused(server.command)
    assert str(tmp_path / "catalog.db") in said
    assert told in said


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 10_000,
        "x = " + '{"x" = ' * 10_000,
        "[" + ".".join("x" * 5_000) + "]",
        '{"UserConfig": ' + "[" * 100_000,
        "[serve]\nport = [1]",
        "[serve]\nport = 1.5",
        "[serve]\ndata = {}",
        "[serve]\nkey_file = 5",
        "[serve]\nhosts = 5",
        "[serve]\nhosts = [5]",
        "serve = 5",
        "queues = 5",
        "queues = [5]",
        "[[queues]]\nname = 5",
        "[[queues]]\nname = 'q'\nlock_duration = []",
        "[[queues]]\nname = 'q'\ncapture = [1]",
        "[[topics]]\nname = 't'\nsubscriptions = 5",
        "[[topics]]\nname = 't'\n[[topics.subscriptions]]\nname = 's'\nrules = [[]]",
        "[[access]]\nname = 'a'\nkey = 5",
        "[journal]\nretention = []",
        "journal = []",
        "namespaces = []",
        "[namespaces]\ncontoso = 5",
        "[namespaces.contoso]\nkey_file = []",
        '{"UserConfig": 5}',
        '{"UserConfig": {"Namespaces": 5}}',
        '{"UserConfig": {"Namespaces": [5]}}',
        '{"UserConfig": {"Namespaces": [{"Queues": [{"Name": []}]}]}}',
    ],
    ids=lambda text: text[:40],
)
def test_a_configuration_with_wrong_types_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "busway.toml"
    file.write_text(text)
    said = refused(serve("--memory", "--port", "0", "--config", str(file)))
    assert str(file) in said
