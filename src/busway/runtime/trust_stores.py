"""Puts the local authority where SDKs look for those that they trust, and takes it away again.

| place | who looks there | how |
|---|---|---|
| `cacert.pem` of certifi, in an environment | the Azure SDK for Python | a marked block |
| the store of the system | Go, .NET on Linux, curl | a file, and the system's own command |
| the trust store of a Java | Java | `keytool` |

Each is as before after it was taken away. What is done twice is done once. Nothing but what carries
our mark is ever touched.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from busway.runtime.certificates import JAVA_PASSWORD, CertificateError, read_certificate

COMMAND_S = 120
BLOCK = re.compile(
    r"\n?# Busway authority (?P<id>[0-9a-f]{16}): begin\n.*?# Busway authority: end\n", re.DOTALL
)
NAME = "busway-"
"""How files and aliases begin that we put somewhere."""


class TrustError(Exception):
    """One sentence: what could not be done, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Authority:
    path: Path
    pem: str
    id: str
    """Tells it from other authorities of brokers."""

    @classmethod
    def read(cls, path: Path) -> Authority:
        """Raises `TrustError`."""
        from cryptography.hazmat.primitives import serialization

        try:
            certificate = read_certificate(path)
        except CertificateError as error:
            raise TrustError(
                f"{error} Start the broker once with --tls, make a certificate with 'busway cert', "
                "or name the file with --authority."
            ) from error
        der = certificate.public_bytes(serialization.Encoding.DER)
        pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
        return cls(path.resolve(), pem, hashlib.sha256(der).hexdigest()[:16])


# --- certifi of a Python environment -------------------------------------------------------------


def certifi_of(python: str) -> Path | None:
    """The bundle that an interpreter's certifi has; None if it has no certifi."""
    given = Path(python)
    if given.is_dir():
        given = given / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    command = [str(given), "-c", "import certifi; print(certifi.where())"]
    try:
        said = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TrustError(f"{given} cannot be asked for its certifi: {error}.") from error
    if said.returncode:
        if "ModuleNotFoundError" in said.stderr or "ImportError" in said.stderr:
            return None
        raise TrustError(f"{given} cannot be asked for its certifi: {said.stderr.strip()[-200:]}")
    return Path(said.stdout.strip()).resolve()


def add_to_bundle(bundle: Path, authority: Authority) -> str:
    text = _read(bundle)
    if any(found["id"] == authority.id for found in BLOCK.finditer(text)):
        return "is there already"
    block = f"\n# Busway authority {authority.id}: begin\n{authority.pem}# Busway authority: end\n"
    _replace(bundle, text + block)
    return "added"


def remove_from_bundle(bundle: Path) -> str:
    text = _read(bundle)
    without = BLOCK.sub("", text)
    if without == text:
        return "was not there"
    _replace(bundle, without)
    return "removed"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TrustError(f"{path} cannot be read: {error}.") from error


def _replace(path: Path, text: str) -> None:
    """As a whole, with the rights that it has. The file may be shared with a cache of packages by
    a hard link, so it is never written in place."""
    draft = path.with_name(f"{path.name}.busway")
    try:
        draft.write_text(text, encoding="utf-8")
        shutil.copymode(path, draft)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise TrustError(
            f"{path} cannot be changed: {error.strerror}. Use an environment of your own (python "
            "-m venv), or give yourself the right to write there."
        ) from error


# --- The store of the system ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SystemStore:
    folder: Path
    """Where authorities of the machine's owner lie."""
    command: Sequence[str]
    """What makes the system read them."""

    def add(self, authority: Authority) -> str:
        place = self.folder / f"{NAME}{authority.id}.crt"
        if place.exists() and _read(place) == authority.pem:
            return "is there already"
        self._write(lambda: place.write_text(authority.pem, encoding="utf-8"))
        self._tell()
        return "added"

    def remove(self) -> str:
        found = sorted(self.folder.glob(f"{NAME}*.crt"))
        if not found:
            return "was not there"
        for each in found:
            self._write(each.unlink)
        self._tell()
        return "removed"

    def _write(self, change: object) -> None:
        assert callable(change)
        try:
            change()
        except OSError as error:
            raise TrustError(
                f"{self.folder} cannot be changed: {error.strerror}. Run the same with sudo."
            ) from error

    def _tell(self) -> None:
        _run(self.command)


SYSTEM_STORES = (
    SystemStore(Path("/usr/local/share/ca-certificates"), ("update-ca-certificates",)),
    SystemStore(Path("/etc/pki/ca-trust/source/anchors"), ("update-ca-trust", "extract")),
    SystemStore(Path("/etc/ca-certificates/trust-source/anchors"), ("trust", "extract-compat")),
)
"""Debian and its children, Fedora and its, Arch."""


def system_store() -> SystemStore:
    for store in SYSTEM_STORES:
        if shutil.which(store.command[0]):
            return store
    raise TrustError(
        "The store of this system is not known. Add the file authority.pem to its trusted roots: "
        "on macOS in Keychain Access, on Windows with certutil -addstore -user Root."
    )


# --- Java ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JavaStore:
    path: Path
    keytool: str

    @classmethod
    def of(cls, place: str) -> JavaStore:
        """Of a Java home, or a trust store. Raises `TrustError`."""
        given = Path(place)
        home = given if given.is_dir() else None
        stores = (
            [given]
            if home is None
            else [
                home / "lib/security/cacerts",
                home / "jre/lib/security/cacerts",
            ]
        )
        store = next((each for each in stores if each.is_file()), None)
        if store is None:
            raise TrustError(f"--java: {place} is neither a Java home nor a trust store.")
        near = None if home is None else home / "bin/keytool"
        keytool = str(near) if near is not None and near.is_file() else shutil.which("keytool")
        if keytool is None:
            raise TrustError("--java: there is no keytool on the PATH; it comes with Java.")
        return cls(store.resolve(), keytool)

    def _aliases(self) -> list[str]:
        said = _run([self.keytool, "-list", *self._store])
        return re.findall(rf"^({NAME}[0-9a-f]{{16}}),", said, re.MULTILINE)

    @property
    def _store(self) -> list[str]:
        return ["-keystore", str(self.path), "-storepass", JAVA_PASSWORD]

    def add(self, authority: Authority) -> str:
        alias = f"{NAME}{authority.id}"
        if alias in self._aliases():
            return "is there already"
        file = ["-alias", alias, "-file", str(authority.path)]
        _run([self.keytool, "-importcert", "-noprompt", *self._store, *file])
        return "added"

    def remove(self) -> str:
        found = self._aliases()
        for alias in found:
            _run([self.keytool, "-delete", *self._store, "-alias", alias])
        return "removed" if found else "was not there"


def _run(command: Sequence[str]) -> str:
    try:
        said = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
            env={**os.environ, "LC_ALL": "C", "JAVA_TOOL_OPTIONS": ""},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TrustError(f"{command[0]} cannot be run: {error}.") from error
    if said.returncode:
        told = (said.stderr.strip() or said.stdout.strip())[-300:]
        raise TrustError(f"{command[0]} failed: {told} If rights are missing, use sudo.")
    return said.stdout
