"""Where a lake is: a folder of this machine, or a prefix in an object store.

A place is an address and nothing else. What opens an object store is found in the environment of
the process that uses it, where the cloud's own tools look for it: so no key is ever in a plan, in a
task, in a log or in a lake.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
TOLD_LINES, TOLD_CHARS = 3, 300
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}|\\")
AZURE_HOST = ".dfs.core.windows.net"
SCHEMES = {
    "s3": "s3://bucket/lake",
    "s3a": "s3://bucket/lake",
    "abfss": f"abfss://container@account{AZURE_HOST}/lake",
    "abfs": f"abfss://container@account{AZURE_HOST}/lake",
    "gs": "gs://bucket/lake",
}
"""Object stores, and how a lake in each is written."""

PATIENCE = {"timeout": "30s", "max_retries": "5", "retry_timeout": "20s"}
"""Of Delta with a request. A capture waits for a store by itself, and says so."""


class LakeFolderError(Exception):
    """A lake cannot be there, and where it can be."""


@dataclass(frozen=True, slots=True)
class Place:
    address: str
    """A path from the root, or a URL; without a slash at its end."""

    @classmethod
    def of(cls, text: str) -> Place:
        """As a user writes it. Raises `LakeFolderError`."""
        scheme, colon, rest = text.partition(":")
        scheme = scheme.lower()
        if colon and scheme == "file":
            path = url2pathname(rest.removeprefix("//").removeprefix("localhost"))
            if not path.startswith("/"):
                raise LakeFolderError(
                    f"'{text}' is no folder of this machine. Write file:///srv/lake."
                )
            return _folder(path)
        if "://" not in text:
            return _folder(text)
        if scheme not in SCHEMES:
            raise LakeFolderError(
                f"A lake cannot be in '{text}': {scheme} is not known here. It can be in a folder, "
                f"or in {', '.join(dict.fromkeys(SCHEMES.values()))}."
            )
        return _in_store(scheme, text)

    @property
    def is_local(self) -> bool:
        return "://" not in self.address

    def below(self, name: str) -> Place:
        return Place(f"{self.address}/{name}")

    # --- for Delta -------------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """What Delta takes; it would undo escapes that are none in a plain path."""
        return Path(self.address).as_uri() if self.is_local else self.address

    def options(self, environ: Mapping[str, str] | None = None) -> dict[str, str] | None:
        """What Delta cannot know from the environment; nothing secret."""
        environ = os.environ if environ is None else environ
        match urlsplit(self.address).scheme:
            case "s3":
                endpoint = _s3_endpoint(environ)
                plain = {"aws_allow_http": "true"} if endpoint.startswith("http:") else {}
                named = {"aws_endpoint": endpoint} if endpoint else {}
                return {"aws_region": _s3_region(environ), **named, **plain, **PATIENCE}
            case "abfss" if _azurite(environ):
                # Delta knows the emulator of the cloud's own tools by this word.
                return {
                    "azure_storage_use_emulator": "true",
                    "azure_container_name": urlsplit(self.address).username or "",
                    **PATIENCE,
                }
            case "":
                return None
        return dict(PATIENCE)

    # --- for files -------------------------------------------------------------------------------

    def files(self, environ: Mapping[str, str] | None = None) -> tuple[FileSystem, str]:
        """What reads and writes files there, and what the place is called by it."""
        import pyarrow.fs as fs

        environ = os.environ if environ is None else environ
        if self.is_local:
            return fs.LocalFileSystem(), self.address
        parts = urlsplit(self.address)
        match parts.scheme:
            case "s3":
                endpoint = _s3_endpoint(environ)
                scheme, _, host = endpoint.partition("://")
                where = {"endpoint_override": host, "scheme": scheme} if endpoint else {}
                found = fs.S3FileSystem(region=_s3_region(environ), **where)
                return found, f"{parts.netloc}{parts.path}"
            case "abfss":
                return _azure_files(parts.hostname or "", environ), f"{parts.username}{parts.path}"
            case _:
                return _google_files(environ), f"{parts.netloc}{parts.path}"

    def read_bytes(self, name: str) -> bytes | None:
        """A small file; None if there is none."""
        files, base = self.files()
        try:
            with files.open_input_stream(f"{base}/{name}") as stream:
                content: bytes = stream.read()
                return content
        except FileNotFoundError:
            return None

    def write_bytes(self, name: str, content: bytes) -> None:
        files, base = self.files()
        path = f"{base}/{name}"
        if self.is_local:
            files.create_dir(path.rpartition("/")[0], recursive=True)
        with files.open_output_stream(path) as stream:
            stream.write(content)

    def remove(self, name: str) -> None:
        files, base = self.files()
        try:
            files.delete_file(f"{base}/{name}")
        except FileNotFoundError:
            return

    def has(self, *names: str) -> bool:
        """Whether all of these files are there."""
        import pyarrow.fs as fs

        files, base = self.files()
        found = files.get_file_info([f"{base}/{name}" for name in names])
        return all(each.type == fs.FileType.File for each in found)

    def names(self) -> Iterator[str]:
        """Of all files below it."""
        import pyarrow.fs as fs

        files, base = self.files()
        chosen = fs.FileSelector(base, recursive=True, allow_not_found=True)
        for each in files.get_file_info(chosen):
            if each.type == fs.FileType.File:
                yield each.path.removeprefix(base).lstrip("/")

    def check_writable(self) -> None:
        """Raises `OSError` or `LakeFolderError` if nothing can be written there."""
        if self.is_local:
            _check_folder(Path(self.address))
            return
        name = "_busway_can_write"
        try:
            self.write_bytes(name, b"")
            self.remove(name)
        except OSError as problem:
            raise LakeFolderError(
                f"{self.address} cannot be written: {first_line(problem)} Is the store there, and "
                "are its keys and its region in the environment of this process?"
            ) from problem


def first_line(problem: BaseException) -> str:
    """Of a library's error, what fits into a sentence: they print trees, stacks and pages of HTML
    behind it."""
    text = _COLOURS.sub("", str(problem)).replace("\u21b3", "")
    text = ": ".join(line.strip() for line in text.strip().splitlines()[:TOLD_LINES])
    text = text if len(text) <= TOLD_CHARS else f"{text[:TOLD_CHARS]}..."
    return text if text.endswith(".") else f"{text}."


def _folder(text: str) -> Place:
    path = str(Path(text).absolute())
    if found := _ESCAPE.search(path):
        raise LakeFolderError(
            f"A lake cannot be in '{path}': Delta takes '{found[0]}' in a path for another "
            "character. Choose a folder with another name."
        )
    return Place(path)


def _in_store(scheme: str, text: str) -> Place:
    parts = urlsplit(text)
    path = parts.path.strip("/")
    known = parts.netloc and (scheme not in ("abfs", "abfss") or parts.username)
    if not known or not path or parts.password or parts.query or parts.fragment:
        raise LakeFolderError(
            f"A lake cannot be in '{text}'. Write {SCHEMES[scheme]}; keys belong into the "
            "environment."
        )
    if found := re.search(r"[^A-Za-z0-9._=/-]", path):
        raise LakeFolderError(
            f"A lake cannot be in '{text}': '{found[0]}' in its path means something else to some "
            "readers. Letters, digits and . _ = - are safe."
        )
    canonical = {"s3a": "s3", "abfs": "abfss"}.get(scheme, scheme)
    return Place(f"{canonical}://{parts.netloc}/{path}")


def _check_folder(place: Path) -> None:
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
    if not os.access(place, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))


# --- What the environment says -------------------------------------------------------------------


def _s3_endpoint(environ: Mapping[str, str]) -> str:
    """Of a store that is not Amazon's, by the names that Amazon's tools read."""
    found = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or ""
    return found.rstrip("/")


def _s3_region(environ: Mapping[str, str]) -> str:
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def _azurite(environ: Mapping[str, str]) -> str | None:
    """Where the emulator of Azure's storage listens, if that is to be used."""
    if environ.get("AZURE_STORAGE_USE_EMULATOR", "").lower() not in ("1", "true"):
        return None
    return environ.get("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:10000").rstrip("/")


AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The one that every Azurite has, and that its documentation prints."""


def _azure_files(host: str, environ: Mapping[str, str]) -> FileSystem:
    import pyarrow.fs as fs

    emulator = _azurite(environ)
    if emulator is not None:
        scheme, _, authority = emulator.partition("://")
        return fs.AzureFileSystem(
            AZURITE_ACCOUNT,
            account_key=AZURITE_KEY,
            blob_storage_authority=authority,
            dfs_storage_authority=authority,
            blob_storage_scheme=scheme,
            dfs_storage_scheme=scheme,
        )
    account = host.partition(".")[0]
    given: dict[str, Any] = {}
    if key := environ.get("AZURE_STORAGE_ACCOUNT_KEY") or environ.get("AZURE_STORAGE_KEY"):
        given["account_key"] = key
    elif token := environ.get("AZURE_STORAGE_SAS_TOKEN"):
        given["sas_token"] = token
    return fs.AzureFileSystem(account, **given)


def _google_files(environ: Mapping[str, str]) -> FileSystem:
    import pyarrow.fs as fs

    emulator = environ.get("STORAGE_EMULATOR_HOST")
    if not emulator:
        return fs.GcsFileSystem()
    scheme, _, host = emulator.partition("://")
    return fs.GcsFileSystem(anonymous=True, scheme=scheme, endpoint_override=host)
