"""Certificates: what `busway cert` makes, what `--tls` keeps, and files that cannot be used."""

from __future__ import annotations

import os
import socket
import ssl
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from busway.runtime.certificates import (
    JAVA_PASSWORD,
    SERVER_LASTS,
    CertificateError,
    CertificateFolder,
    names_of,
    read_certificate,
)
from busway.runtime.data_folder import StartError
from busway.runtime.tls import own_certificate, server_context

NOW = datetime.now(UTC)


def agree(files: CertificateFolder, hostname: str, authority: Path | None = None) -> str | None:
    """Do a client that trusts the authority, strictly, and a server agree? Then on what version."""
    trusting = ssl.create_default_context(cafile=authority or files.authority)
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    left, right = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(left, right, server_hostname=hostname)
    server = server_context(files.server, files.server_key).wrap_bio(right, left, server_side=True)
    for _ in range(3):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return client.version()


class TestMaking:
    @pytest.mark.parametrize("hostname", ["localhost", "127.0.0.1", "::1"])
    def test_the_local_names_are_always_in_it(
        self, certificates: CertificateFolder, hostname: str
    ) -> None:
        assert agree(certificates, hostname) == "TLSv1.3"

    def test_other_names_are_not(self, certificates: CertificateFolder) -> None:
        with pytest.raises(ssl.SSLCertVerificationError, match=r"doesn't match|not valid for"):
            agree(certificates, "broker.example.com")

    def test_names_can_be_given(self, tmp_path: Path) -> None:
        files = CertificateFolder(tmp_path)
        files.make(["Broker.Example.com", "10.0.0.7", "[fe80::1]", "localhost"])
        for hostname in ("broker.example.com", "10.0.0.7", "fe80::1", "localhost"):
            assert agree(files, hostname)
        assert len(names_of(read_certificate(files.server))) == 6

    @pytest.mark.parametrize("name", ["http://broker", "broker:5671", "", "a b", "x" * 300])
    def test_what_is_no_name_is_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(CertificateError, match="neither a host name nor an address"):
            CertificateFolder(tmp_path).make([name])

    def test_keys_are_readable_by_their_owner_only(self, certificates: CertificateFolder) -> None:
        for key in (certificates.authority_key, certificates.server_key):
            assert stat.S_IMODE(key.stat().st_mode) == 0o600

    def test_the_authority_stays_and_the_certificate_is_new(self, tmp_path: Path) -> None:
        files = CertificateFolder(tmp_path)
        files.make([])
        authority, first = files.authority.read_bytes(), files.server.read_bytes()
        files.make(["other.example.com"])
        assert files.authority.read_bytes() == authority
        assert files.server.read_bytes() != first
        assert agree(files, "other.example.com")

    def test_java_gets_the_same_authority(self, certificates: CertificateFolder) -> None:
        data = certificates.authority_for_java.read_bytes()
        kept = pkcs12.load_pkcs12(data, JAVA_PASSWORD.encode())
        assert [each.certificate for each in kept.additional_certs] == [
            read_certificate(certificates.authority)
        ]

    def test_another_authority_is_not_trusted(
        self, tmp_path: Path, certificates: CertificateFolder
    ) -> None:
        files = CertificateFolder(tmp_path)
        files.make([])
        with pytest.raises(ssl.SSLCertVerificationError):
            agree(files, "localhost", authority=certificates.authority)

    def test_an_authority_that_is_over_is_not_used(self, tmp_path: Path) -> None:
        files = CertificateFolder(tmp_path)
        files.make([], now=NOW - timedelta(days=3651))
        with pytest.raises(CertificateError, match=r"expired on .* Delete it"):
            files.make([])

    def test_a_certificate_does_not_outlive_its_authority(self, tmp_path: Path) -> None:
        files = CertificateFolder(tmp_path)
        files.make([], now=NOW - timedelta(days=3600))
        files.make([], now=NOW)
        end = read_certificate(files.authority).not_valid_after_utc
        assert read_certificate(files.server).not_valid_after_utc == end

    def test_files_that_do_not_belong_together_are_refused(
        self, tmp_path: Path, certificates: CertificateFolder
    ) -> None:
        files = CertificateFolder(tmp_path)
        files.make([])
        files.authority_key.write_bytes(certificates.authority_key.read_bytes())
        with pytest.raises(CertificateError, match="is not the key of"):
            files.make([])
        files.authority_key.write_text("this is no key")
        with pytest.raises(CertificateError, match="is no private key"):
            files.make([])

    def test_a_folder_that_cannot_be_made_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(CertificateError, match="Choose another folder"):
            CertificateFolder(tmp_path / "file" / "tls").make([])


class TestOfTheDataFolder:
    """`busway serve --tls`."""

    def test_is_made_once(self, tmp_path: Path) -> None:
        assert own_certificate(tmp_path, []) == (tmp_path / "server.pem", tmp_path / "server.key")
        first = (tmp_path / "server.pem").read_bytes()
        own_certificate(tmp_path, [])
        assert (tmp_path / "server.pem").read_bytes() == first

    def test_is_renewed_before_it_is_over_by_the_same_authority(self, tmp_path: Path) -> None:
        files = CertificateFolder(tmp_path)
        files.make([], now=NOW - SERVER_LASTS + timedelta(days=20))
        authority, first = files.authority.read_bytes(), files.server.read_bytes()
        own_certificate(tmp_path, [])
        assert files.server.read_bytes() != first
        assert files.authority.read_bytes() == authority

    def test_gets_a_name_that_is_missing(self, tmp_path: Path) -> None:
        own_certificate(tmp_path, [])
        own_certificate(tmp_path, ["192.0.2.7"])
        assert "192.0.2.7" in names_of(read_certificate(tmp_path / "server.pem"))

    @pytest.mark.parametrize(
        ("machine", "named"), [("Broker", True), ("no name at all", False), ("x" * 64, False)]
    )
    def test_has_the_name_of_the_machine_if_that_is_one(
        self, tmp_path: Path, machine: str, named: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(socket, "gethostname", lambda: machine)
        certificate, _ = own_certificate(tmp_path, [])
        assert (machine.lower() in names_of(read_certificate(certificate))) is named

    def test_that_cannot_be_read_is_refused(self, tmp_path: Path) -> None:
        own_certificate(tmp_path, [])
        (tmp_path / "server.pem").write_text("this is no certificate")
        with pytest.raises(StartError, match=r"--tls: .*server\.pem: is no certificate in PEM"):
            own_certificate(tmp_path, [])


class TestWhatCannotBeServed:
    def test_a_file_that_is_not_there(
        self, tmp_path: Path, certificates: CertificateFolder
    ) -> None:
        nowhere = tmp_path / "nowhere.pem"
        with pytest.raises(StartError, match=r"--tls-cert: .*nowhere\.pem: there is no such file"):
            server_context(nowhere, certificates.server_key)
        with pytest.raises(StartError, match=r"--tls-key: .*nowhere\.pem: there is no such file"):
            server_context(certificates.server, nowhere)

    def test_a_key_of_another_certificate(self, certificates: CertificateFolder) -> None:
        with pytest.raises(StartError, match=r"--tls-key: .* is not the key of .*server\.pem"):
            server_context(certificates.server, certificates.authority_key)

    def test_a_certificate_that_is_over(self, tmp_path: Path) -> None:
        files = CertificateFolder(tmp_path)
        files.make([], now=NOW - SERVER_LASTS - timedelta(days=1))
        with pytest.raises(StartError, match=r"--tls-cert: .* expired on \d{4}-\d\d-\d\d.* Renew"):
            server_context(files.server, files.server_key)

    def test_files_in_the_wrong_places(self, certificates: CertificateFolder) -> None:
        with pytest.raises(StartError, match=r"--tls-cert: .*server\.key: is no certificate"):
            server_context(certificates.server_key, certificates.server)
        with pytest.raises(StartError, match=r"--tls-key: .*server\.pem: is no private key"):
            server_context(certificates.server, certificates.server)

    def test_a_key_with_a_password(self, tmp_path: Path, certificates: CertificateFolder) -> None:
        key = serialization.load_pem_private_key(certificates.server_key.read_bytes(), None)
        locked = tmp_path / "locked.key"
        locked.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"secret"),
            )
        )
        with pytest.raises(StartError, match=r"locked\.key is encrypted"):
            server_context(certificates.server, locked)


class TestTheCommand:
    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "busway", "cert", *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=os.environ,
        )

    def test_says_how_each_client_is_told_to_trust_it(self, tmp_path: Path) -> None:
        folder = tmp_path / "certs"
        name = socket.gethostname()
        said = self.run("--out", str(folder), "--name", "broker.example.com", "--name", name)
        assert said.returncode == 0, said.stderr
        for variable in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"):
            assert f"export {variable}={folder}/authority.pem" in said.stdout
        assert f"trustStore={folder}/authority.p12" in said.stdout
        assert f'connection_verify="{folder}/authority.pem"' in said.stdout
        assert f"--tls-cert {folder}/server.pem --tls-key {folder}/server.key" in said.stdout
        assert agree(CertificateFolder(folder), "broker.example.com")

    def test_refuses_in_one_sentence(self, tmp_path: Path) -> None:
        said = self.run("--out", str(tmp_path), "--name", "http://broker")
        assert said.returncode == 2
        (line,) = said.stderr.splitlines()
        assert line.startswith("busway: 'http://broker' is neither a host name nor an address.")
