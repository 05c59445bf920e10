"""What holds for all tests: the clock is no judge, because on a busy machine it judges others."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("busway", deadline=None, print_blob=True)
settings.load_profile("busway")
