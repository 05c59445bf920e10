"""The official .NET SDK in short: `make compliance ARGS=dotnet` runs all of `compliance/dotnet`.

The SDK and its runtime come from npm (`compliance/dotnet/install.py`). Where npm is missing or the
registry is not reached, the test is skipped and says so, in CI too: an outage of a registry says
nothing about a change. They run in a process of their own, so that a crash of the runtime is the
failure of a test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from busway.runtime.certificates import CertificateFolder
from busway.testing import Server
from compliance.dotnet import install

SUITE_S = 400


def test_the_short_form_of_the_suite_passes_by_every_way_to_the_broker(tmp_path: Path) -> None:
    try:
        install.install()
    except install.Unavailable as why:
        pytest.skip(f"the .NET SDK was not tried: {why}")
    files = CertificateFolder(tmp_path / "tls")
    number = os.getpid()
    own_address = f"127.{64 + number // 65_536 % 64}.{number // 256 % 256}.{number % 256}"
    files.make([own_address])
    tls = ["--tls-cert", str(files.server), "--tls-key", str(files.server_key)]
    with Server(arguments=tls) as server:
        told = {
            "BUSWAY_CONNECTION_STRING": server.connection_string,
            "BUSWAY_TLS_CONNECTION_STRING": server.tls_connection_string,
            "BUSWAY_OWN_ADDRESS": own_address,
            "SSL_CERT_FILE": str(files.authority),
        }
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-m", "short", "--in-turn"],
            cwd=install.HERE,
            env=os.environ | told,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=SUITE_S,
        )
        assert done.returncode == 0, f"{done.stdout}\n{server.log[-2000:]}"
        assert server.is_running
