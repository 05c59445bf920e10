"""The shell and the Python of `docs/how-to/manage-entities.md`, run as they are written there."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from busway.testing import Server
from tests.http.atom_client import Management

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "manage-entities.md"
NEEDED = ("bash", "curl", "sed")


def test_the_requests_of_the_page_work(managed: Server, bus: Management, tmp_path: Path) -> None:
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not found")
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    *before, last = blocks
    assert len(before) == 3
    listing = "\n".join(["set -e", *before, last])
    done = subprocess.run(
        ["bash", "-c", listing],
        cwd=tmp_path,
        env={
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "BUSWAY_CONNECTION_STRING": managed.connection_string,
            "BUS": f"http://{bus.authority}",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "<LockDuration>PT30S</LockDuration>" in done.stdout
    assert "<LockDuration>PT1M</LockDuration>" in done.stdout
    assert '<title type="text">Queues</title>' in done.stdout
    assert bus.get("/parcels").status == 404


def test_the_python_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of the README's tour, whose queues are there already."""
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    tour = (PAGE.parents[2] / "examples" / "tour.toml").read_text()
    with Server(config=tour, data=tmp_path, arguments=["--tls"]) as server:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "tls" / "authority.pem"))
        monkeypatch.setenv("BUSWAY_CONNECTION_STRING", server.connection_string)
        output = io.StringIO()
        with redirect_stdout(output):
            exec(compile(program, PAGE.name, "exec"), {})
    assert output.getvalue() == "0 0 0\n"
