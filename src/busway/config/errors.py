"""What a person is told about a mistake in a configuration: where, what, and what is allowed."""

from __future__ import annotations

from collections.abc import Iterable


class ConfigError(Exception):
    """Its text is shown as it is; it names the file or flag, and the key."""


def unknown_key(where: str, key: str, known: Iterable[str]) -> ConfigError:
    """Names the nearest key that there is, because most unknown keys are typing mistakes."""
    from difflib import get_close_matches

    known = sorted(set(known))
    near = get_close_matches(key.lower(), [each.lower() for each in known], n=1, cutoff=0.6)
    if near:
        meant = next(each for each in known if each.lower() == near[0])
        return ConfigError(f"{where}: unknown key '{key}'. Did you mean '{meant}'?")
    return ConfigError(f"{where}: unknown key '{key}'. Known keys are {', '.join(known)}.")


def wrong_value(where: str, key: str, found: object, allowed: str) -> ConfigError:
    return ConfigError(f"{where}: {key} is {shown(found)}, and must be {allowed}.")


def shown(value: object) -> str:
    """A value as it stands in a file, shortened."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "null"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
