"""The page as one HTML file: findings, figures, then one section per subject, each with its charts and tables.

Runs in the driver of the report's job; pure functions. The page contains no network address and no time of its creation, so
that another run over the same tables writes the same bytes. Names of topics, clients, groups and files are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from odradek.jobs.usage_report.findings import Finding
from odradek.jobs.usage_report.page import svg, text
from odradek.jobs.usage_report.page.charts import Chart
from odradek.jobs.usage_report.page.text import Table

_LEVELS = {"bad": "Act now", "warn": "Check", "note": "Note", "good": "OK"}


@dataclass(frozen=True)
class Tile:
    """A figure at the top of the page: `key` is its data attribute, `value` the exact value."""

    key: str
    title: str
    shown: str
    value: float | None
    small: str = ""


@dataclass(frozen=True)
class Section:
    """A section: rows of charts and tables side by side; the tables of `more` are folded; `empty` is shown if there are
    none."""

    id: str
    title: str
    lead: str
    parts: tuple[tuple[Chart | Table, ...], ...] = ()
    more: tuple[Table, ...] = ()
    empty: str = ""

    @property
    def charts(self) -> list[Chart]:
        return [part for row in self.parts for part in row if not isinstance(part, Table)]

    @property
    def tables(self) -> list[Table]:
        return [part for row in self.parts for part in row if isinstance(part, Table)] + list(self.more)


@dataclass(frozen=True)
class Page:
    """The contents of the page; `subtitle` names the period and the source."""

    title: str
    subtitle: str
    findings: tuple[Finding, ...]
    tiles: tuple[Tile, ...]
    sections: tuple[Section, ...]
    footer: str


def html(page: Page) -> str:
    """Return the page as HTML."""
    own = files("odradek.jobs.usage_report.page")
    style = own.joinpath("style.css").read_text(encoding="utf-8")
    script = own.joinpath("script.js").read_text(encoding="utf-8")
    titles = {section.id: section.title for section in page.sections}
    links = "".join(f'<li><a href="#{s.id}">{escape(s.title)}</a></li>' for s in page.sections)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(page.title)}: {escape(page.subtitle)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f'<div class="sheet">\n<header><h1>{escape(page.title)}</h1><p>{escape(page.subtitle)}</p></header>\n'
        f"<main>\n{_findings(page.findings, titles)}\n{_tiles(page.tiles)}\n"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n'
        + "\n".join(_section(section) for section in page.sections)
        + f"\n</main>\n<footer>{escape(page.footer)}</footer>\n</div>\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _findings(findings: Sequence[Finding], titles: dict[str, str]) -> str:
    rows = []
    for finding in findings:
        link = (
            f' <a href="#{finding.section}">{escape(titles[finding.section])}</a>' if finding.section in titles else ""
        )
        rows.append(
            f'<li class="{finding.level}" data-finding="{escape(finding.key)}" data-subject="{escape(finding.subject)}">'
            f'<span class="level">{_LEVELS[finding.level]}</span>'
            f'<span class="said">{escape(finding.sentence)}{link}</span></li>'
        )
    return f'<ol class="findings" aria-label="Findings">{"".join(rows)}</ol>'


def _tiles(tiles: Sequence[Tile]) -> str:
    cells = []
    for tile in tiles:
        small = f"<small>{escape(tile.small)}</small>" if tile.small else ""
        cells.append(
            f'<div><dt>{escape(tile.title)}</dt><dd data-key="{escape(tile.key)}" '
            f'data-value="{text.attribute(tile.value)}">{escape(tile.shown)}{small}</dd></div>'
        )
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def _section(section: Section) -> str:
    out = [f'<section id="{section.id}"><h2>{escape(section.title)}</h2><p>{escape(section.lead)}</p>']
    for row in section.parts:
        drawn = "".join(_part(part) for part in row)
        out.append(drawn if len(row) == 1 else f'<div class="pair">{drawn}</div>')
    if section.empty:
        out.append(f'<p class="empty">{escape(section.empty)}</p>')
    out += [f"<details><summary>{escape(table.title)}</summary>{_part(table)}</details>" for table in section.more]
    return "".join(out) + "</section>"


def _part(part: Chart | Table) -> str:
    if isinstance(part, Table):
        return f'<div class="panel">{text.table_html(part)}</div>'
    return svg.draw(part)
