"""`busway trust` and `busway env`: on scratch environments and stores, with a real server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest

from busway.runtime import trust_stores
from busway.runtime.certificates import CertificateFolder
from busway.runtime.trust_stores import Authority, JavaStore, SystemStore, TrustError
from busway.testing import Server

WAIT_S = 120
DIAL = """
import certifi, socket, ssl, sys
context = ssl.create_default_context(cafile=certifi.where())
with socket.create_connection(("localhost", int(sys.argv[1])), timeout=100) as plain:
    try:
        context.wrap_socket(plain, server_hostname="localhost").close()
    except ssl.SSLCertVerificationError as error:
        sys.exit(f"untrusted: {error.verify_message}")
print("trusted")
"""


def busway(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "busway", *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env={**os.environ, **variables},
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("trust") / "data"
    with Server("q", data=data, arguments=["--dev-tokens"]) as running:
        yield running


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own, with a certifi of its own."""
    folder = tmp_path_factory.mktemp("application") / "venv"
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python3*/site-packages")
    shutil.copytree(Path(certifi.__file__).parent, packages / "certifi")
    return folder


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    files = CertificateFolder(tmp_path / "tls")
    files.make([])
    return Authority.read(files.authority)


def dials(application: Path, port: int) -> str:
    said = subprocess.run(
        [application / "bin" / "python", "-c", DIAL, str(port)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return (said.stdout + said.stderr).strip()


def test_python_trusts_the_broker_until_it_is_taken_away(server: Server, application: Path) -> None:
    (bundle,) = application.glob("lib/python3*/site-packages/certifi/cacert.pem")
    before = bundle.read_bytes()
    mode = bundle.stat().st_mode
    assert dials(application, server.port).startswith("untrusted")
    place = ["--python", str(application)]
    said = busway("trust", str(server.data), *place)
    assert (said.returncode, said.stderr) == (0, "")
    assert f"added ({bundle})" in said.stdout
    assert dials(application, server.port) == "trusted"
    once = bundle.read_bytes()
    assert once.startswith(before)
    assert "is there already" in busway("trust", str(server.data), *place).stdout
    assert bundle.read_bytes() == once
    said = busway("trust", "--remove", *place)
    assert (said.returncode, said.stderr) == (0, "")
    assert f"removed ({bundle})" in said.stdout
    assert bundle.read_bytes() == before
    assert bundle.stat().st_mode == mode
    assert dials(application, server.port).startswith("untrusted")
    assert "was not there" in busway("trust", "--remove", *place).stdout


def test_without_an_authority_it_says_what_to_do(tmp_path: Path) -> None:
    said = busway("trust", str(tmp_path))
    assert said.returncode == 2
    assert "Start the broker once with --tls" in said.stderr


def test_an_environment_without_certifi_needs_nothing(server: Server, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    said = busway("trust", str(server.data), "--python", str(tmp_path / "bare"), PYTHONPATH="")
    assert said.returncode == 0
    assert "has no certifi" in said.stdout


def test_what_cannot_be_asked_is_told_and_the_rest_is_done(
    server: Server, application: Path, tmp_path: Path
) -> None:
    places = ["--python", str(tmp_path / "none"), "--python", str(application)]
    said = busway("trust", str(server.data), *places)
    assert said.returncode == 1
    assert "cannot be asked for its certifi" in said.stderr
    assert "added" in said.stdout
    busway("trust", "--remove", "--python", str(application))


def test_a_bundle_that_shares_its_file_leaves_the_other_alone(
    tmp_path: Path, authority: Authority
) -> None:
    """Installers link packages to a cache of theirs."""
    cached, bundle = tmp_path / "cached.pem", tmp_path / "cacert.pem"
    cached.write_text("# roots\n")
    os.link(cached, bundle)
    assert trust_stores.add_to_bundle(bundle, authority) == "added"
    assert cached.read_text() == "# roots\n"
    assert authority.pem in bundle.read_text()


def test_two_authorities_have_room_and_go_together(tmp_path: Path, authority: Authority) -> None:
    other = CertificateFolder(tmp_path / "other")
    other.make([])
    bundle = tmp_path / "cacert.pem"
    bundle.write_text("# roots\n")
    trust_stores.add_to_bundle(bundle, authority)
    trust_stores.add_to_bundle(bundle, Authority.read(other.authority))
    assert bundle.read_text().count("BEGIN CERTIFICATE") == 2
    assert trust_stores.remove_from_bundle(bundle) == "removed"
    assert bundle.read_text() == "# roots\n"


class TestTheSystem:
    def test_it_is_a_file_and_a_command(self, tmp_path: Path, authority: Authority) -> None:
        told = tmp_path / "told"
        folder = tmp_path / "anchors"
        folder.mkdir()
        (folder / "somebody-elses.crt").write_text("theirs")
        write = f"open({str(told)!r}, 'a').write('x')"
        store = SystemStore(folder, (sys.executable, "-c", write))
        assert store.add(authority) == "added"
        assert store.add(authority) == "is there already"
        assert store.remove() == "removed"
        assert store.remove() == "was not there"
        assert told.read_text() == "xx"
        assert [each.name for each in folder.iterdir()] == ["somebody-elses.crt"]

    @pytest.mark.skipif(
        shutil.which("update-ca-certificates") is None, reason="Debian's command is not here"
    )
    def test_debians_own_command_takes_it(self, tmp_path: Path, authority: Authority) -> None:
        local, made = tmp_path / "local", tmp_path / "certs"
        for folder in (local, made, tmp_path / "hooks"):
            folder.mkdir()
        command = [
            "update-ca-certificates",
            *("--localcertsdir", str(local)),
            *("--etccertsdir", str(made)),
            *("--hooksdir", str(tmp_path / "hooks")),
        ]
        store = SystemStore(local, command)
        assert store.add(authority) == "added"
        assert authority.pem.strip() in (made / "ca-certificates.crt").read_text()
        assert store.remove() == "removed"
        assert authority.pem.strip() not in (made / "ca-certificates.crt").read_text()

    def test_a_failing_command_is_told(self, tmp_path: Path, authority: Authority) -> None:
        store = SystemStore(tmp_path, (sys.executable, "-c", "raise SystemExit('no right')"))
        with pytest.raises(TrustError, match="no right"):
            store.add(authority)


@pytest.mark.skipif(shutil.which("keytool") is None, reason="there is no Java here")
def test_a_trust_store_of_java_takes_it_and_gives_it_back(
    tmp_path: Path, authority: Authority
) -> None:
    other = CertificateFolder(tmp_path / "other")
    other.make([])
    store = JavaStore.of(str(other.authority_for_java))
    assert store.add(authority) == "added"
    assert store.add(authority) == "is there already"
    assert store._aliases() == [f"busway-{authority.id}"]
    assert store.remove() == "removed"
    assert store.remove() == "was not there"


def test_what_is_no_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrustError, match="neither a Java home nor a trust store"):
        JavaStore.of(str(tmp_path))


class TestEnv:
    def test_the_variables_are_those_of_the_server(self, server: Server) -> None:
        assert server.data is not None
        said = busway("env", str(server.data), "--shell", "dotenv")
        assert said.returncode == 0
        found = dict(line.split("=", 1) for line in said.stdout.splitlines())
        assert found["IDENTITY_ENDPOINT"] == f"http://localhost:{server.port}/msi/token"
        assert found["IDENTITY_HEADER"] == (server.data / "identity" / "header").read_text()
        assert found["SERVICEBUS_FULLY_QUALIFIED_NAMESPACE"] == "localhost"
        bundle = Path(found["SSL_CERT_FILE"]).read_text()
        assert bundle.endswith((server.data / "tls" / "authority.pem").read_text())
        assert bundle.count("BEGIN CERTIFICATE") >= 2, "the rest of the world is trusted as before"

    def test_a_shell_takes_them(self, server: Server) -> None:
        lines = busway("env", str(server.data)).stdout
        said = subprocess.run(
            ["sh", "-c", f'{lines}\nprintf %s "$JAVA_TOOL_OPTIONS"'],
            capture_output=True,
            text=True,
            check=True,
        )
        assert said.stdout.startswith("-Djavax.net.ssl.trustStore=")
        assert said.stdout.endswith("changeit")

    def test_powershell_has_its_own_form(self, server: Server) -> None:
        said = busway("env", str(server.data), "--shell", "powershell").stdout
        assert all(line.startswith("$env:") for line in said.splitlines())

    def test_without_dev_tokens_it_says_what_to_do(self, tmp_path: Path) -> None:
        said = busway("env", str(tmp_path))
        assert said.returncode == 2
        assert "--dev-tokens" in said.stderr
