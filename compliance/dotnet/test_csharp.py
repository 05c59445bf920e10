"""The C# of examples and pages, by Microsoft's compiler: it compiles, and the example runs."""

from __future__ import annotations

import re
from pathlib import Path

import csharp
import install
import pytest

from busway.testing.server import Server

PROJECT = Path(__file__).resolve().parents[2]
EXAMPLE = PROJECT / "examples" / "dotnet" / "Program.cs"
PAGE = PROJECT / "docs" / "how-to" / "use-the-dotnet-sdk.md"
FENCED = re.compile(r"^```csharp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRELUDE = """
using System.Transactions;
using Azure.Messaging.ServiceBus;
string connectionString = args[0];
await using var given = new ServiceBusClient(connectionString);
ServiceBusReceiver receiver = given.CreateReceiver("orders");
ServiceBusSender sender = given.CreateSender("orders");
ServiceBusReceivedMessage request = await receiver.ReceiveMessageAsync();
"""
"""What the fragments of a page take for granted."""


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    try:
        csharp.install_compiler()
    except install.Unavailable as why:
        pytest.skip(f"there is no C# compiler: {why}")


def test_the_example_compiles_and_does_what_it_says() -> None:
    program = csharp.compiled(EXAMPLE.read_text())
    with Server() as server:
        printed = csharp.run(program, server.connection_string).splitlines()
    places = dict(line.split(": ")[::-1] for line in printed[:3])
    assert set(places) == {"wherever there is room", "first", "second"}
    assert places["first"] == places["second"]
    assert places["first"].startswith("partition ")
    assert "must have a SessionId or a PartitionKey" in printed[3]
    assert printed[-2:] == ["basket 1: bread", "basket 1: milk"]


def test_the_fragments_of_the_page_compile() -> None:
    fragments = FENCED.findall(PAGE.read_text())
    assert len(fragments) >= 2
    for fragment in fragments:
        csharp.compiled(f"{PRELUDE}{{\n{fragment}\n}}")


def test_a_member_that_the_library_does_not_have_is_found() -> None:
    """So that the tests above are known to be able to fail."""
    wrong = EXAMPLE.read_text().replace("SendMessageAsync", "SendMassageAsync")
    with pytest.raises(AssertionError, match="CS1061"):
        csharp.compiled(wrong)
