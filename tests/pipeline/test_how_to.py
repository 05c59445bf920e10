"""What the page on capturing lets its reader paste, on a lake of the layout that it speaks of."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from busway.pipeline.lake.tables import MESSAGES

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "capture-to-a-lake.md"


def test_the_python_of_the_page_counts_messages_by_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = ["completed", "completed", "dead_lettered"]
    rows = [{"message_id": f"m{n}", "state": state} for n, state in enumerate(states)]
    schema = MESSAGES.layout().schema
    write_deltalake(str(tmp_path / "lake" / "messages"), pa.Table.from_pylist(rows, schema=schema))
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    with redirect_stdout(io.StringIO()) as output:
        exec(compile(program, PAGE.name, "exec"), {})
    counts = [line.split() for line in output.getvalue().splitlines()]
    assert ["completed", "2"] in counts
    assert ["dead_lettered", "1"] in counts
