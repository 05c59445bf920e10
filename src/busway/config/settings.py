"""The settings of `busway serve`, and where each may come from.

A flag goes before a variable of the environment, that before the `[serve]` table of the
configuration file, that before the default. Every source speaks of the same names: `--http-port`,
`BUSWAY_HTTP_PORT`, `http_port`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from busway.config.entities import Declared, read_entities
from busway.config.errors import ConfigError, shown, unknown_key, wrong_value
from busway.config.journal import read_journal_limits
from busway.model.journal import JournalLimits

ENVIRONMENT_PREFIX = "BUSWAY_"
STORES_MAX = 64
NODES_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    data: Path = Path("data")
    """The folder of the catalog, the stores and the root key."""
    host: str = "127.0.0.1"
    port: int = 5672
    """AMQP. 0 takes any free port."""
    http_port: int = 5300
    stores: int = 2
    """Messaging stores; partitions are spread over them (D-14)."""
    nodes: int = 1
    key: str | None = field(default=None, repr=False)
    """The key of the root rule; None: the one that is kept in the data folder."""
    config: Path | None = None
    memory: bool = False
    """Keep nothing on disk."""


@dataclass(frozen=True, slots=True)
class Configuration:
    settings: Settings
    entities: tuple[Declared, ...] = ()
    journal: JournalLimits = field(default_factory=JournalLimits)


DEFAULTS = Settings()
SETTING_NAMES = tuple(each.name for each in fields(Settings))
IN_FILE = tuple(name for name in SETTING_NAMES if name != "config")
RANGES = {
    "port": (0, 65_535),
    "http_port": (0, 65_535),
    "stores": (1, STORES_MAX),
    "nodes": (1, NODES_MAX),
}
TRUE_WORDS = {"1", "true", "yes", "on"}
FALSE_WORDS = {"0", "false", "no", "off", ""}


def load(flags: Mapping[str, object], environ: Mapping[str, str]) -> Configuration:
    """Settings and declared entities. A flag that was not given is absent or None.

    Raises `ConfigError`.
    """
    for name in flags:
        if name not in SETTING_NAMES:
            raise unknown_key("flags", name, SETTING_NAMES)
    values: dict[str, Any] = {}
    for name in SETTING_NAMES:
        if (text := _variable(name, environ)) is not None:
            variable = ENVIRONMENT_PREFIX + name.upper()
            values[name] = _convert(name, text, "environment", variable)
    for name, given in flags.items():
        if given is not None:
            values[name] = _convert(name, given, "flags", f"--{name.replace('_', '-')}")

    entities: tuple[Declared, ...] = ()
    journal = JournalLimits()
    if values.get("config") is not None:
        document = read_document(values["config"])
        file = str(values["config"])
        for name, value in _serve_table(document, file).items():
            values.setdefault(name, _convert(name, value, f"{file}: [serve]", name))
        entities = read_entities(document, file)
        journal = read_journal_limits(document, file)
    return Configuration(Settings(**values), entities, journal)


def _variable(name: str, environ: Mapping[str, str]) -> str | None:
    text = environ.get(ENVIRONMENT_PREFIX + name.upper())
    if text is not None and name == "port" and text.startswith("tcp://"):
        # Kubernetes sets this for every pod beside a service that is called `busway`.
        return None
    return text


def _convert(name: str, value: object, where: str, key: str) -> object:
    if name == "memory":
        return _flag(value, where, key)
    if name in RANGES:
        return _number(value, where, key, *RANGES[name])
    if not isinstance(value, str | Path) or not str(value).strip():
        raise wrong_value(where, key, value, "a text that is not empty")
    if name == "key" and (len(str(value).split()) != 1 or len(str(value)) < 16):
        # The value itself is a secret: it is not shown.
        raise ConfigError(f"{where}: {key} must be one word of at least 16 characters.")
    return Path(value) if name in ("data", "config") else str(value)


def _flag(value: object, where: str, key: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in TRUE_WORDS | FALSE_WORDS:
        return value.strip().lower() in TRUE_WORDS
    raise wrong_value(where, key, value, "true or false")


def _number(value: object, where: str, key: str, least: int, most: int) -> int:
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        number = int(value.strip()) if len(value.strip()) < 10 else None
    if number is None or not least <= number <= most:
        raise wrong_value(where, key, value, f"a whole number from {least} to {most}")
    return number


# --- The file ------------------------------------------------------------------------------------


def read_document(path: Path) -> dict[str, Any]:
    """A TOML file of ours, or the JSON of Microsoft's emulator; told apart by how they begin."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}.") from error
    # Of the two only JSON begins with a brace.
    return _parse_json(text, path) if text.lstrip().startswith("{") else _parse_toml(text, path)


def _parse_toml(text: str, path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}.") from error


def _parse_json(text: str, path: Path) -> dict[str, Any]:
    import json

    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path}: is not valid JSON: {error}.") from error
    assert isinstance(document, dict)
    return document


def _serve_table(document: Mapping[str, Any], file: str) -> Mapping[str, Any]:
    table = document.get("serve", {})
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: serve is {shown(table)}, and must be a table, [serve].")
    for name in table:
        if name not in IN_FILE:
            raise unknown_key(f"{file}: [serve]", name, IN_FILE)
    return table
