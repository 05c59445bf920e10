"""A machine on which the .NET SDK cannot be had is told why."""

from __future__ import annotations

from pathlib import Path

import pytest

from compliance.dotnet import install


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_without_npm_and_dotnet_it_is_said_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install.missing() == "npm (on Linux for x64) or dotnet not found"
    with pytest.raises(install.Unavailable, match=r"npm .* or dotnet not found"):
        install.install()


@pytest.mark.skipif(not install.takes_npm(), reason="npm would not be asked on this machine")
def test_a_registry_that_is_not_reached_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:1")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    with pytest.raises(install.Unavailable, match="ECONNREFUSED"):
        install.install()
    assert not install.is_installed()
    assert list(install.folder().parent.iterdir()) == []
