"""The checkers of the simulation: each owns one promise and says when it is broken (D-35)."""

from __future__ import annotations
