"""Which session ids are the same session (SES-13).

They are not case-sensitive: *Order-7* and *order-7* are one session, with one state, in one
partition. Two texts are the same if .NET's `OrdinalIgnoreCase` says so: each character in upper
case, without regard to language, length or context; nothing else becomes an ASCII letter. A message
goes on saying what its sender wrote.

Entities that were made before keep the rule of then, by which case matters: their messages lie
where it put them.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from busway.model.entities import Entity

_FROZEN = unicodedata.ucd_3_2_0
"""Only characters of this version are folded. A later one may give a letter its upper case, and the
partition of a key must outlive every upgrade (D-15)."""


def session_key(entity: Entity, session_id: str) -> str:
    """What two session ids have in common if they are the same session of an entity."""
    return fold(session_id) if entity.folds_session_ids else session_id


def fold(session_id: str) -> str:
    """The one spelling of ids that differ only in case: mostly in lower case."""
    if session_id.isascii():
        return session_id.lower()
    return "".join(map(_fold_one, session_id))


@lru_cache(maxsize=1024)
def _fold_one(character: str) -> str:
    upper = _other_case(character, character.upper(), character.title())
    lower = _other_case(upper, upper.lower())
    # The Kelvin sign is no k, and a long s no s, in upper case as well as in lower.
    return lower if _other_case(lower, lower.upper(), lower.title()) == upper else upper


def _other_case(character: str, *wanted: str) -> str:
    """The first of the wanted ones that is one character, and no ASCII letter for a foreign one."""
    for other in wanted:
        if (
            len(other) == 1
            and other.isascii() == character.isascii()
            and _FROZEN.category(character) != "Cn"
            and _FROZEN.category(other) != "Cn"
        ):
            return other
    return character
