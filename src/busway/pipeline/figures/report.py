"""The report: one HTML page with the figures of a lake, made from its gold tables.

It stands for itself: styles and charts are in it, nothing is fetched, and it can be mailed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any

from busway import __version__
from busway.pipeline.figures import charts
from busway.pipeline.figures.charts import Line, amount
from busway.pipeline.lake.lake import Lake
from busway.pipeline.lake.table import LakeTable
from busway.pipeline.lake.tables import (
    DUPLICATES,
    HOT_KEYS,
    LATENCY,
    ORDER_AUDIT,
    PARTITION_LOAD,
    REASONS,
    SKEW,
    THROUGHPUT,
)

Rows = list[dict[str, Any]]
EVENTS_SHOWN = ("enqueued", "delivered", "completed", "abandoned", "dead_lettered", "expired")
TOP = 15


@dataclass(frozen=True, slots=True)
class Figures:
    """The gold tables, read."""

    throughput: Rows
    latency: Rows
    skew: Rows
    hot_keys: Rows
    reasons: Rows
    duplicates: Rows
    order: Rows
    heat: Rows
    """Messages per partition and minute."""


def read(lake: Lake, entity: str | None = None) -> Figures:
    return Figures(
        throughput=_rows(lake, THROUGHPUT, entity),
        latency=_rows(lake, LATENCY, entity),
        skew=_rows(lake, SKEW, entity),
        hot_keys=_rows(lake, HOT_KEYS, entity),
        reasons=_rows(lake, REASONS, entity),
        duplicates=_rows(lake, DUPLICATES, entity),
        order=_rows(lake, ORDER_AUDIT, entity),
        heat=_rows(lake, PARTITION_LOAD, entity),
    )


def _rows(lake: Lake, table: LakeTable, entity: str | None) -> Rows:
    there = lake.table(table.layout())
    if not there.exists():
        return []
    rows: Rows = there.delta().to_pyarrow_table().to_pylist()
    return [row for row in rows if entity is None or row["entity"] == entity]


# --- The page ------------------------------------------------------------------------------------


def page(figures: Figures, made_at: datetime, lake: str) -> str:
    names = sorted({name_of(row) for row in figures.throughput})
    sections = "".join(_entity(name, f"e{number}", figures) for number, name in enumerate(names))
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>Busway: report of {made_at:%Y-%m-%d %H:%M} UTC</title>"
        f"<style>{STYLE}</style></head><body><header>"
        f"<h1>What passed through the bus</h1><p>{escape(lake)}, "
        f"{made_at:%Y-%m-%d %H:%M} UTC, Busway {__version__}</p>"
        f"{_span(figures.throughput)}{_contents(names)}</header>"
        f"<main>{sections or charts.nothing()}</main></body></html>"
    )


def _span(throughput: Rows) -> str:
    if not throughput:
        return ""
    minutes = [row["minute"] for row in throughput]
    return f"<p>From {min(minutes):%Y-%m-%d %H:%M} to {max(minutes):%Y-%m-%d %H:%M} UTC</p>"


def _contents(names: Sequence[str]) -> str:
    """Where there is more than one thing to go to."""
    if len(names) < 2:
        return ""
    items = "".join(
        f'<li><a href="#e{number}">{escape(name)}</a></li>' for number, name in enumerate(names)
    )
    return f"<nav><ul>{items}</ul></nav>"


def _entity(name: str, anchor: str, all_figures: Figures) -> str:
    def mine(rows: Rows) -> Rows:
        return [row for row in rows if name_of(row) == name]

    blocks = [
        _tiles(mine(all_figures.throughput), mine(all_figures.order)),
        _block("Throughput", "events per minute", _throughput(mine(all_figures.throughput))),
        _block(
            "Waiting", "milliseconds from enqueued to first delivery, and to completion; "
            "where a point stands for several minutes, the highest of them",
            _latency(mine(all_figures.latency)),
        ),
        _block("Partitions over time", "messages per partition", _heat(mine(all_figures.heat))),
        _block(
            "Skew", "share of each partition divided by an even share: 1 is even",
            _skew(mine(all_figures.skew)),
        ),
        _block("Top keys", "sessions and partition keys with most messages",
               _keys(mine(all_figures.hot_keys))),
        _block("Dead letters", "messages by reason", _reasons(mine(all_figures.reasons))),
        _block("Duplicates", "dropped per minute", _duplicates(mine(all_figures.duplicates))),
        _block("Order of sessions", "whether each session was completed in order",
               _order(mine(all_figures.order))),
    ]  # fmt: skip
    return f'<section id="{anchor}"><h2>{escape(name)}</h2>{"".join(blocks)}</section>'


def _block(title: str, subtitle: str, content: str) -> str:
    return (
        f"<article><h3>{escape(title)}</h3><p class=sub>{escape(subtitle)}</p>{content}</article>"
    )


def _tiles(throughput: Rows, order: Rows) -> str:
    totals: dict[str, int] = defaultdict(int)
    for row in throughput:
        totals[row["event"]] += row["events"]
    inversions = sum(row["inversions"] for row in order)
    tiles = [(event.replace("_", " "), amount(totals[event])) for event in EVENTS_SHOWN]
    if order:
        tiles.append(("out of order", amount(inversions)))
    items = "".join(f"<li><b>{value}</b>{escape(label)}</li>" for label, value in tiles)
    return f'<ul class="tiles">{items}</ul>'


def _throughput(rows: Rows) -> str:
    points: dict[str, list[tuple[datetime, float]]] = defaultdict(list)
    for row in rows:
        points[row["event"]].append((row["minute"], row["events"]))
    series = [
        Line(event.replace("_", " "), points[event], charts.per_minute) for event in EVENTS_SHOWN
    ]
    return charts.lines(series, "events/min")


def _latency(rows: Rows) -> str:
    parts = []
    for measure, title in (("to_delivery", "to delivery"), ("to_completion", "to completion")):
        chosen = [row for row in rows if row["measure"] == measure]
        series = [
            Line(name, [(row["minute"], row[f"{name}_ms"]) for row in chosen])
            for name in ("p50", "p95", "p99")
        ]
        parts.append(f"<h4>{title}</h4>{charts.lines(series, 'ms')}")
    return "".join(parts)


def _heat(rows: Rows) -> str:
    points: dict[int, list[tuple[datetime, float]]] = defaultdict(list)
    for row in rows:
        points[row["partition"]].append((row["minute"], row["messages"]))
    return charts.heat(points, "messages")


def _skew(rows: Rows) -> str:
    ordered = sorted(rows, key=lambda row: row["partition"])
    return charts.bars([(f"partition {row['partition']}", row["skew"]) for row in ordered], "")


def _keys(rows: Rows) -> str:
    first = sorted(rows, key=lambda row: (-row["messages"], row["key"]))[:TOP]
    words = {"session": "session", "partition_key": "key"}
    return charts.bars(
        [(f"{words[row['key_kind']]} {row['key']}", row["messages"]) for row in first], "messages"
    )


def _reasons(rows: Rows) -> str:
    totals: dict[str, int] = defaultdict(int)
    for row in rows:
        totals[row["reason"] or "(no reason)"] += row["messages"]
    first = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:TOP]
    return charts.bars(first, "messages")


def _duplicates(rows: Rows) -> str:
    dropped = [(row["minute"], row["dropped"]) for row in rows]
    if not any(count for _, count in dropped):
        return charts.nothing("None was dropped.")
    return charts.lines([Line("dropped", dropped, charts.per_minute)], "per min")


def _order(rows: Rows) -> str:
    if not rows:
        return charts.nothing()
    wrong = sorted((row for row in rows if row["inversions"]), key=lambda row: -row["inversions"])
    if not wrong:
        count = sum(row["completed"] for row in rows)
        return (
            f"<p>All {amount(count)} messages of {amount(len(rows))} sessions were completed in "
            "order.</p>"
        )
    return _table(
        ("session", "completed", "out of order", "first at (UTC)"),
        [
            (
                row["session_id"],
                amount(row["completed"]),
                amount(row["inversions"]),
                f"{row['first_inversion_at']:%Y-%m-%d %H:%M:%S}",
            )
            for row in wrong[:TOP]
        ],
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    titles = "".join(f"<th>{escape(text)}</th>" for text in head)
    lines = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"


def name_of(row: Mapping[str, Any]) -> str:
    entity: str = row["entity"]
    return entity if row["subscription"] is None else f"{entity}/{row['subscription']}"


STYLE = """
:root{--bg:#fff;--fg:#1c2024;--soft:#687076;--line:#e4e7ea;--card:#f8f9fa;
--s0:#2a6fdb;--s1:#d9730d;--s2:#0f8a5f;--s3:#a347ba;--s4:#c62a4b;--s5:#7a7f85;--heat:42,111,219}
@media(prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e8eaed;--soft:#9aa1a8;--line:#2b3036;
--card:#1b1f23;--s0:#6ea8fe;--s1:#f0a35e;--s2:#4cc38a;--s3:#d08be0;--s4:#f2738c;--s5:#a0a6ac;
--heat:110,168,254}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,sans-serif}header,main{max-width:1000px;margin:0 auto;padding:20px}
h1{margin:0;font-size:26px}h2{margin:28px 0 8px;font-size:21px}h3{margin:0;font-size:16px}
h4{margin:10px 0 0;font-size:13px;color:var(--soft);font-weight:600}header p,.sub{margin:0;
color:var(--soft)}.sub{font-size:13px;margin-bottom:8px}article{background:var(--card);
border:1px solid var(--line);border-radius:8px;padding:14px 16px;margin:12px 0}
.chart{overflow-x:auto}svg{width:100%;min-width:560px;height:auto;display:block}.grid{stroke:var(--line);fill:none}
.label{fill:var(--soft);font-size:11px}.end{text-anchor:end}.middle{text-anchor:middle}
.line{fill:none;stroke-width:1.8}.bar{fill:var(--s0)}.nothing{color:var(--soft)}
.hidden{opacity:0}.hidden:hover{opacity:1}nav ul{display:flex;flex-wrap:wrap;gap:4px 16px;
list-style:none;margin:10px 0 0;padding:0}a{color:var(--s0)}td{overflow-wrap:anywhere}
@media print{article{break-inside:avoid}}
.line.s0{stroke:var(--s0)}.line.s1{stroke:var(--s1)}.line.s2{stroke:var(--s2)}
.line.s3{stroke:var(--s3)}.line.s4{stroke:var(--s4)}.line.s5{stroke:var(--s5)}
.dot.s0{fill:var(--s0)}.dot.s1{fill:var(--s1)}.dot.s2{fill:var(--s2)}.dot.s3{fill:var(--s3)}
.dot.s4{fill:var(--s4)}.dot.s5{fill:var(--s5)}.legend{list-style:none;display:flex;gap:14px;
flex-wrap:wrap;margin:0 0 4px;padding:0;font-size:13px}.legend li::before{content:"";width:10px;
height:10px;border-radius:3px;display:inline-block;margin-right:6px;background:var(--c)}
.legend .s0{--c:var(--s0)}.legend .s1{--c:var(--s1)}.legend .s2{--c:var(--s2)}
.legend .s3{--c:var(--s3)}.legend .s4{--c:var(--s4)}.legend .s5{--c:var(--s5)}
.h0{fill:var(--line)}.h1{fill:rgba(var(--heat),.22)}.h2{fill:rgba(var(--heat),.35)}
.h3{fill:rgba(var(--heat),.48)}.h4{fill:rgba(var(--heat),.61)}.h5{fill:rgba(var(--heat),.74)}
.h6{fill:rgba(var(--heat),.87)}.h7{fill:rgb(var(--heat))}.tiles{list-style:none;display:flex;
gap:10px;flex-wrap:wrap;padding:0;margin:8px 0}.tiles li{background:var(--card);border:1px solid
var(--line);border-radius:8px;padding:8px 14px;color:var(--soft);font-size:13px}
.tiles b{display:block;font-size:20px;color:var(--fg)}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:4px 8px;border-bottom:1px solid var(--line);font-size:14px}
th{color:var(--soft);font-weight:600}
"""
