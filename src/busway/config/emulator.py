"""What `--emulator` stands for: ports, key, file and defaults of Microsoft's emulator.

The key is printed in Microsoft's documentation, so it keeps nobody out. That is why it is taken
only where somebody asks for it by this flag.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from busway.config.errors import ConfigError
from busway.model.entities import Entity, Queue, Subscription, Topic

KEY = "SAS_KEY_VALUE"
HTTP_PORT_VARIABLE = "EMULATOR_HTTP_PORT"
CONFIG_VARIABLE = "CONFIG_PATH"
CONFIG_PLACES = (Path("Config.json"), Path("/ServiceBus_Emulator/ConfigFiles/Config.json"))
"""Where one keeps it, and where the emulator's compose files mount it."""

HOUR_MS = 3_600_000
DEFAULTS: dict[type[Entity], dict[str, Any]] = {
    Queue: {
        "default_ttl_ms": HOUR_MS,
        "duplicate_window_ms": 20_000,
        "max_delivery_count": 3,
    },
    Topic: {"default_ttl_ms": HOUR_MS, "duplicate_window_ms": 20_000},
    Subscription: {"default_ttl_ms": HOUR_MS, "max_delivery_count": 3},
}
"""Of its schema, where they differ from the service's."""


def config_file(environ: Mapping[str, str]) -> Path | None:
    """The emulator's file, from where it usually is; None if there is none."""
    if named := environ.get(CONFIG_VARIABLE, "").strip():
        path = Path(named)
        if not path.is_file():
            raise ConfigError(
                f"environment: {CONFIG_VARIABLE} is '{named}', and there is no such file. Put the "
                "emulator's Config.json there, or unset the variable."
            )
        return path
    return next((path for path in CONFIG_PLACES if path.is_file()), None)
