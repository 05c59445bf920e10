"""The official .NET SDK as Python sees it: import this first, and the `Azure` namespaces are there.

A process has one .NET runtime, and keeps it. What it should trust in TLS is read from the
environment when it starts (`SSL_CERT_FILE`), so that is set before this is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import clr_loader
import install
import pythonnet

FOLDER = install.install()
"""Fetched at the first call, found at the next ones."""

_root = FOLDER / "root"
pythonnet.set_runtime(
    clr_loader.get_coreclr(
        runtime_config=str(FOLDER / "runtimeconfig.json"),
        dotnet_root=str(_root) if _root.exists() else None,
    )
)
sys.path.append(str(FOLDER / "lib"))

import clr  # noqa: E402

for _assembly in (
    "Azure.Messaging.ServiceBus",
    "System.Net.WebSockets",
    "System.Transactions.Local",
):
    clr.AddReference(_assembly)

from System import Func  # noqa: E402
from System.Threading.Tasks import Task  # noqa: E402

WAIT_S = 60.0
"""How long a call may take; nearly all take milliseconds, but on a busy machine."""


def result(task: Any, within_s: float = WAIT_S) -> Any:
    """What a task (or a ValueTask) comes to; its exception is raised as it is."""
    if hasattr(task, "AsTask"):
        task = task.AsTask()
    if Task.WaitAny([task], int(within_s * 1000)) < 0:
        raise TimeoutError(f"not done within {within_s} s: {task}")
    return task.GetAwaiter().GetResult()


def handler(kind: Any, function: Callable[[Any], Any]) -> Any:
    """A Python function as an asynchronous event handler; keep a reference to it."""

    def handle(args: Any) -> Any:
        function(args)
        return Task.CompletedTask

    return Func[kind, Task](handle)


def listed(pageable: Any) -> list[Any]:
    """All that an asynchronous sequence brings."""
    found = []
    sequence = pageable.GetAsyncEnumerator()
    while result(sequence.MoveNextAsync()):
        found.append(sequence.Current)
    return found
