"""Gets a .NET runtime and `Azure.Messaging.ServiceBus` for tests that drive them from Python.

Neither needs .NET on the machine. The npm package that `package-lock.json` pins, with its checksum,
is a program of Microsoft's that ships both: the release build of the SDK and a whole runtime. Where
it does not run (it is for Linux on x64) or npm is missing, a `dotnet` on the PATH gets the SDK from
NuGet (`sdk.csproj`). What is needed of either is kept in the user's cache folder:

    <cache>/busway/dotnet-<pins>/runtimeconfig.json    what clr_loader starts
                                 root/                 the runtime, unless the machine has its own
                                 lib/                  the SDK and what it depends on

    python compliance/dotnet/install.py                installs, and prints the folder
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SDK = "Azure.Messaging.ServiceBus"
FRAMEWORK = "Microsoft.NETCore.App"
INSTALL_S = 600


class Unavailable(Exception):
    """What is missing, or what could not be reached: there is no .NET here for now."""


class Broken(Exception):
    """What was fetched is not what is pinned, or not laid out as expected."""


def folder() -> Path:
    """Where it is, or will be; another pin is another folder."""
    pins = b"".join((HERE / name).read_bytes() for name in ("package-lock.json", "sdk.csproj"))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "busway" / f"dotnet-{hashlib.sha256(pins).hexdigest()[:12]}"


def missing() -> str:
    """What the machine lacks to install it, or nothing."""
    return "" if is_installed() or takes_npm() or _takes_nuget() else _needed()


def is_installed() -> bool:
    return (folder() / "runtimeconfig.json").exists()


def install() -> Path:
    """Do so unless it is there; several processes may, and all find it whole."""
    if is_installed():
        return folder()
    folder().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".dotnet-", dir=folder().parent) as temporary:
        made = Path(temporary, "made")
        made.mkdir()
        if takes_npm():
            _from_npm(Path(temporary, "npm"), made)
        elif _takes_nuget():
            _from_nuget(made)
        else:
            raise Unavailable(_needed())
        try:
            made.rename(folder())
        except OSError:
            if not is_installed():  # Else another process was faster.
                raise
    return folder()


def takes_npm() -> bool:
    machine = (platform.system(), platform.machine())
    return machine == ("Linux", "x86_64") and shutil.which("npm") is not None


def _takes_nuget() -> bool:
    return shutil.which("dotnet") is not None


def _needed() -> str:
    return "npm (on Linux for x64) or dotnet not found"


# --- from npm ------------------------------------------------------------------------------------


def fetch_by_npm(pins: Path, work: Path) -> None:
    """What a folder's lock file pins, into `node_modules` of a new folder."""
    work.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(pins / name, work)
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    soon = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
    _run(["npm", "ci", *quiet, *soon], work)


def _from_npm(work: Path, made: Path) -> None:
    fetch_by_npm(HERE, work)
    (program,) = work.glob("node_modules/@azure/*/dist")
    try:
        _arrange(program, made)
    except (KeyError, StopIteration, FileNotFoundError) as error:
        raise Broken(f"the npm package is not laid out as expected: {error!r}") from error


def _arrange(program: Path, made: Path) -> None:
    """Lay a program's single files out as an installed runtime, and as a folder with the SDK."""
    deps = json.loads((program / "azmcp.deps.json").read_text())
    target = deps["runtimeTarget"]["name"]
    libraries = deps["targets"][target]
    prefix = f"runtimepack.{FRAMEWORK}.Runtime."
    pack = next(name for name in libraries if name.startswith(prefix))
    version = pack.partition("/")[2]
    parts = {kind: libraries[pack][kind] for kind in ("runtime", "native")}
    shared = made / "root" / "shared" / FRAMEWORK / version
    _move(program, shared, [*parts["runtime"], *parts["native"]])
    host = made / "root" / "host" / "fxr" / version
    host.mkdir(parents=True)
    shutil.copy(shared / "libhostfxr.so", host)
    _write(
        shared / f"{FRAMEWORK}.deps.json",
        {
            "runtimeTarget": {"name": target, "signature": ""},
            "targets": {target: {f"{FRAMEWORK}/{version}": parts}},
            "libraries": {
                f"{FRAMEWORK}/{version}": {"type": "package", "serviceable": True, "sha512": ""}
            },
        },
    )
    _move(program, made / "lib", _files_of(SDK, libraries))
    _write(
        made / "runtimeconfig.json",
        {
            "runtimeOptions": {
                "tfm": "net" + ".".join(version.split(".")[:2]),
                "framework": {"name": FRAMEWORK, "version": version},
                # No library for the languages of the world is needed then.
                "configProperties": {"System.Globalization.Invariant": True},
            }
        },
    )


def _files_of(name: str, libraries: dict[str, Any]) -> set[str]:
    """The files of a library and of all that it depends on."""
    files: set[str] = set()
    known = {key.partition("/")[0]: value for key, value in libraries.items()}
    wanted, seen = [name], {name}
    while wanted:
        library = known[wanted.pop()]
        files.update(library.get("runtime", ()))
        more = set(library.get("dependencies", ())) & known.keys() - seen
        seen |= more
        wanted += more
    return files


def _move(source: Path, destination: Path, names: list[str] | set[str]) -> None:
    destination.mkdir(parents=True)
    for name in names:
        (source / Path(name).name).rename(destination / Path(name).name)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1))


# --- from NuGet ----------------------------------------------------------------------------------


def _from_nuget(made: Path) -> None:
    _run(["dotnet", "publish", str(HERE / "sdk.csproj"), "-o", str(made / "lib")], made)
    (made / "lib" / "sdk.runtimeconfig.json").rename(made / "runtimeconfig.json")


def _run(command: list[str], where: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=where, capture_output=True, text=True, check=False, timeout=INSTALL_S
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} was not done after {INSTALL_S} s") from None
    if done.returncode:
        said = done.stderr or done.stdout
        error = Broken if "EINTEGRITY" in said else Unavailable
        first = ", ".join(line.removeprefix("npm error ") for line in said.splitlines()[:4])
        raise error(f"{' '.join(command[:2])} failed: {first}")


if __name__ == "__main__":
    try:
        print(install())
    except (Unavailable, Broken) as error:
        sys.exit(f"no .NET: {error}")
