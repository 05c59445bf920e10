"""Values of settings, whether they are text of a flag or typed by a file.

Whatever cannot be one raises `ConfigError` with the place that the caller names.
"""

from __future__ import annotations

from pathlib import Path

from busway.config.errors import ConfigError, wrong_value
from busway.model.access import CHOSEN_KEY_MIN_CHARS
from busway.model.limits import TIERS, Tier

TRUE_WORDS = {"1", "true", "yes", "on"}
FALSE_WORDS = {"0", "false", "no", "off", ""}
HOSTS_WANTED = 'a list of names, such as ["127.0.0.2"]'
NAMESPACE_PARTITIONS = TIERS[Tier.PREMIUM].namespace_partitions


def flag(value: object, where: str, key: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in TRUE_WORDS | FALSE_WORDS:
        return value.strip().lower() in TRUE_WORDS
    raise wrong_value(where, key, value, "true or false")


def is_off(value: object) -> bool:
    return value is False or (isinstance(value, str) and value.strip().lower() == "off")


def number(
    value: object, where: str, key: str, least: int, most: int, *, or_off: bool = False
) -> int:
    found: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        found = value
    elif isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        found = int(value.strip()) if len(value.strip()) < 10 else None
    if found is None or not least <= found <= most:
        allowed = f"a whole number from {least} to {most}"
        raise wrong_value(where, key, value, f"{allowed}, or off" if or_off else allowed)
    return found


def secret(value: object, where: str, key: str) -> str:
    """The key of an access rule. It is not shown, whatever is wrong with it."""
    if not isinstance(value, str) or len(value.split()) != 1 or len(value) < CHOSEN_KEY_MIN_CHARS:
        raise ConfigError(
            f"{where}: {key} must be one word of at least {CHOSEN_KEY_MIN_CHARS} characters."
        )
    return value


def key_in_file(path: Path, what: str) -> str:
    """The one word in a file; it is not shown either."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{what}: {path}: there is no such file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what}: {path}: cannot be read: {error}.") from error
    return secret(text.strip(), f"{what}: {path}", "the key")


def hosts(value: object, where: str, key: str) -> tuple[str, ...]:
    """A list, or a text with commas."""
    named = value.split(",") if isinstance(value, str) else value
    if not isinstance(named, list) or not all(
        isinstance(each, str) and len(each.split()) == 1 for each in named
    ):
        raise wrong_value(where, key, value, HOSTS_WANTED)
    return tuple(each.strip() for each in named)


def tier(value: object, where: str, key: str) -> Tier:
    """P-12, P-13."""
    for each in Tier:
        if isinstance(value, str) and value.strip().lower() == each.value.lower():
            return each
    raise wrong_value(where, key, value, "basic, standard or premium")


def partitions(value: object, where: str, key: str) -> int:
    """P-14."""
    text = str(value).strip()
    for each in NAMESPACE_PARTITIONS:
        if text == str(each):
            return each
    raise wrong_value(where, key, value, "1, 2 or 4")
