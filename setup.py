"""Builds the fast codec where a compiler is at hand; everything else is in pyproject.toml.

Without a compiler (or with one that fails) the package installs all the same and runs on the pure
codec. `Extension(optional=True)` is not enough for that: a missing compiler surfaces as an error
which setuptools does not count as optional, so `build_extension` catches whatever comes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FAST_CODEC = Path("src/busway/amqp/_fast.pyx")


class BuildIfPossible(build_ext):
    def run(self) -> None:
        try:
            super().run()
        except Exception as problem:
            self.go_on_without(problem)

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as problem:
            self.go_on_without(problem)

    def go_on_without(self, problem: Exception) -> None:
        print(
            f"busway: the fast codec was not built ({problem}); using the pure one", file=sys.stderr
        )


def extensions() -> list[Extension]:
    if not FAST_CODEC.exists():
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    fast = Extension("busway.amqp._fast", [str(FAST_CODEC)], optional=True)
    return list(cythonize([fast], language_level=3))


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildIfPossible})
