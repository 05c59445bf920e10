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

from busway.config import emulator
from busway.config.entities import Declared
from busway.config.errors import ConfigError, shown, unknown_key, wrong_value
from busway.config.identity import read_issuers
from busway.config.journal import read_journal_limits
from busway.config.namespaces import DeclaredNamespace, read_namespaces
from busway.config.strangers import read_stranger_share
from busway.config.values import (
    flag,
    hosts,
    is_off,
    key_in_file,
    number,
    partitions,
    secret,
    tier,
)
from busway.model.entities import DEFAULT_NAMESPACE
from busway.model.identity import Issuer
from busway.model.journal import JournalLimits
from busway.model.limits import Tier
from busway.model.strangers import StrangerShare

ENVIRONMENT_PREFIX = "BUSWAY_"
STORES_MAX = 64
NODES_MAX = 64
METRICS_ENTITIES_MAX = 100_000
METRICS_WORDS = ("token", "open")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    data: Path = Path("data")
    """The folder of the catalog, the stores and the root key."""
    host: str = "127.0.0.1"
    port: int = 5672
    """AMQP, HTTP and TLS, as all ports (D-32). 0 takes any free port."""
    http_port: int | None = 5300
    """Where clients of Microsoft's emulator look for HTTP; None: no port of its own."""
    tls_port: int | None = 5671
    """Where clients look for AMQP in TLS; open while TLS is on. None: no port of its own."""
    https_port: int | None = 443
    """Where clients look for HTTP in TLS; open while TLS is on. None: no port of its own."""
    tls: bool = False
    """Use the certificate of the data folder; made if there is none."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    stores: int = 2
    """Messaging stores; partitions are spread over them (D-14)."""
    nodes: int = 1
    key: str | None = field(default=None, repr=False)
    """The key of the root rule; None: the one that is kept in the data folder."""
    key_file: Path | None = None
    """A file that has `key`, where it would be seen otherwise: in a list of processes."""
    hosts: tuple[str, ...] = ()
    """Names and addresses under which clients reach the default namespace, beside those by which
    they call it."""
    emulator: bool = False
    """Stand in for Microsoft's emulator: its ports, its key, its file (`config/emulator.py`)."""
    dev_tokens: bool = False
    """Issue Entra tokens to whoever on this machine knows `identity_header`."""
    identity_header: str | None = field(default=None, repr=False)
    """The secret for `dev_tokens`; None: the one that is kept in the data folder."""
    print_connection_string: bool = False
    """Also where standard output is no terminal and may be kept as a log. It has the root key."""
    tier: Tier | None = None
    """Of the default namespace (P-12, P-13). None: the one that it has, at first start Standard."""
    namespace_partitions: int | None = None
    """Of the default namespace, in the tier Premium (P-14)."""
    config: Path | None = None
    memory: bool = False
    """Keep nothing on disk."""
    metrics: str = "token"
    """Who may read `/metrics`: whoever has a token that may manage, or everybody."""
    metrics_entities: int = 1_000
    """How many entities of a namespace have series of their own there."""
    otel: bool = False
    """Send traces and metrics by OTLP; where to is said by OpenTelemetry's own variables."""
    allow_faults: bool = False
    """Let whoever may manage make stores slow, ill or gone."""
    allow_clock: bool = False
    """Let whoever may manage move the clock, and reset the server."""
    accept_clock: bool = False
    """Set stores that are ahead of the machine's clock back to it."""


@dataclass(frozen=True, slots=True)
class Configuration:
    settings: Settings
    namespaces: tuple[DeclaredNamespace, ...] = (DeclaredNamespace(name=DEFAULT_NAMESPACE),)
    """The default one first."""
    chosen: frozenset[str] = frozenset()
    """Settings that somebody wrote down; the others may give way where they cannot be had."""
    journal: JournalLimits = field(default_factory=JournalLimits)
    issuers: tuple[Issuer, ...] = ()
    """Whose bearer tokens are taken; what they may do is each namespace's matter."""
    strangers: StrangerShare = field(default_factory=StrangerShare)

    @property
    def entities(self) -> tuple[Declared, ...]:
        """Those of the default namespace."""
        return self.namespaces[0].entities


DEFAULTS = Settings()
SETTING_NAMES = tuple(each.name for each in fields(Settings))
NOT_IN_FILE = ("config", "accept_clock", "emulator")
"""The file itself, what is meant for one start, and what finds the file."""
IN_FILE = tuple(name for name in SETTING_NAMES if name not in NOT_IN_FILE)
RANGES = {
    "port": (0, 65_535),
    "http_port": (0, 65_535),
    "tls_port": (0, 65_535),
    "https_port": (0, 65_535),
    "stores": (1, STORES_MAX),
    "nodes": (1, NODES_MAX),
    "metrics_entities": (0, METRICS_ENTITIES_MAX),
}
CAN_BE_OFF = ("http_port", "tls_port", "https_port")
FLAGS = (
    "memory",
    "tls",
    "emulator",
    "dev_tokens",
    "otel",
    "allow_faults",
    "allow_clock",
    "accept_clock",
    "print_connection_string",
)
PATHS = ("data", "config", "tls_cert", "tls_key", "key_file")


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

    if values.get("emulator"):
        values |= _as_the_emulator(values, environ)
    document: Mapping[str, Any] = {}
    file = ""
    if values.get("config") is not None:
        document = read_document(values["config"])
        file = str(values["config"])
        for name, value in _serve_table(document, file).items():
            values.setdefault(name, _convert(name, value, f"{file}: [serve]", name))
    if values.get("dev_tokens") and not (values.get("memory") or values.get("tls_cert")):
        values["tls"] = True  # clients with a credential know no other way
    settings = Settings(**values)
    _check_tls(settings)
    _check_dev_tokens(settings)
    default = DeclaredNamespace(
        name=DEFAULT_NAMESPACE,
        tier=settings.tier,
        partitions=settings.namespace_partitions,
        hosts=settings.hosts,
        key=_key(settings),
    )
    issuers = read_issuers(document, file)
    return Configuration(
        settings,
        read_namespaces(document, file, default, issuers, emulator=settings.emulator),
        frozenset(values),
        read_journal_limits(document, file),
        issuers,
        read_stranger_share(document, file),
    )


def _as_the_emulator(values: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """What `--emulator` says where nothing else does. Its ports must be had: clients cannot be told
    of others."""
    found: dict[str, Any] = {}
    if "config" not in values and (path := emulator.config_file(environ)) is not None:
        found["config"] = path
    if "http_port" not in values:
        text = environ.get(emulator.HTTP_PORT_VARIABLE, "").strip() or str(DEFAULTS.http_port)
        variable = emulator.HTTP_PORT_VARIABLE
        found["http_port"] = _convert("http_port", text, "environment", variable)
    return found


def _check_tls(settings: Settings) -> None:
    """What only makes sense together."""
    if (settings.tls_cert is None) != (settings.tls_key is None):
        given, missing = ("cert", "key") if settings.tls_key is None else ("key", "cert")
        raise ConfigError(
            f"--tls-{given} is given without --tls-{missing}. TLS needs both, or --tls for a "
            "certificate that Busway makes itself."
        )
    if settings.tls and settings.tls_cert is not None:
        raise ConfigError(
            "--tls and --tls-cert are both given. --tls uses a certificate that Busway makes "
            "itself; leave it out to use your own."
        )
    if settings.tls and settings.memory:
        raise ConfigError(
            "--tls keeps its certificate in the data folder, and with --memory there is none. Make "
            "a certificate with 'busway cert', and give it with --tls-cert and --tls-key."
        )


def _check_dev_tokens(settings: Settings) -> None:
    if settings.dev_tokens and settings.memory and settings.identity_header is None:
        raise ConfigError(
            "--dev-tokens keeps its secret in the data folder, and with --memory there is none. "
            "Give one with BUSWAY_IDENTITY_HEADER or --identity-header; applications get the same "
            "as IDENTITY_HEADER."
        )


def _key(settings: Settings) -> str | None:
    if settings.key_file is None:
        return settings.key or (emulator.KEY if settings.emulator else None)
    if settings.key is not None:
        raise ConfigError("--key and --key-file are both given. Leave one of them out.")
    return key_in_file(settings.key_file, "--key-file")


def _variable(name: str, environ: Mapping[str, str]) -> str | None:
    text = environ.get(ENVIRONMENT_PREFIX + name.upper())
    if text is not None and name == "port" and text.startswith("tcp://"):
        # Kubernetes sets this for every pod beside a service that is called `busway`.
        return None
    return text


def _convert(name: str, value: object, where: str, key: str) -> object:
    if name in FLAGS:
        return flag(value, where, key)
    if name in CAN_BE_OFF and is_off(value):
        return None
    if name in RANGES:
        return number(value, where, key, *RANGES[name], or_off=name in CAN_BE_OFF)
    if name == "metrics" and value not in METRICS_WORDS:
        raise wrong_value(where, key, value, " or ".join(METRICS_WORDS))
    if name == "tier":
        return tier(value, where, key)
    if name == "namespace_partitions":
        return partitions(value, where, key)
    if name in ("key", "identity_header"):
        return secret(value, where, key)
    if name == "hosts":
        return hosts(value, where, key)
    if not isinstance(value, str | Path) or not str(value).strip():
        raise wrong_value(where, key, value, "a text that is not empty")
    return Path(value) if name in PATHS else str(value)


# --- The file ------------------------------------------------------------------------------------


def read_document(path: Path) -> dict[str, Any]:
    """A TOML file of ours, or the JSON of Microsoft's emulator; told apart by how they begin."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}.") from error
    from busway.config.json_with_comments import looks_like_json

    return _parse_json(text, path) if looks_like_json(text) else _parse_toml(text, path)


TOO_DEEP = "is nested too deeply to be a configuration. Take lists and tables out of each other."


def _parse_toml(text: str, path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}.") from error
    except RecursionError:
        raise ConfigError(f"{path}: {TOO_DEEP}") from None


def _parse_json(text: str, path: Path) -> dict[str, Any]:
    from busway.config.json_with_comments import loads

    try:
        document = loads(text)
    except ValueError as error:
        raise ConfigError(f"{path}: is not valid JSON: {error}.") from error
    except RecursionError:
        raise ConfigError(f"{path}: {TOO_DEEP}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: is {shown(document)}, and must be an object.")
    return document


def _serve_table(document: Mapping[str, Any], file: str) -> Mapping[str, Any]:
    table = document.get("serve", {})
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: serve is {shown(table)}, and must be a table, [serve].")
    for name in table:
        if name not in IN_FILE:
            raise unknown_key(f"{file}: [serve]", name, IN_FILE)
    return table
