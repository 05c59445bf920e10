"""Why bearer tokens are refused, beside what is in the table of all errors (`model/errors.py`)."""

from __future__ import annotations

from busway.model.errors import UNAUTHORIZED_CONDITION, ErrorKind

TOKEN_REFUSED = ErrorKind(
    "TokenRefused",
    UNAUTHORIZED_CONDITION,
    401,
    40103,
    "InvalidToken: The token is refused: {detail}.",
)
ROLE_MISSING = ErrorKind(
    "RoleMissing",
    UNAUTHORIZED_CONDITION,
    401,
    40100,
    "Unauthorized access. '{who}' has no role for '{uri}'. Assign one in [[roles]] of the "
    "configuration file.",
)
