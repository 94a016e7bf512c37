"""The picture of a run: each figure as a bar, by how it compares with the baseline measured beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.report import Report
from benchmarks.table import Row

__all__ = ["NoPlot", "plot"]

BETTER, WORSE, TARGET, TEXT, FAINT = "#2a7f9e", "#d9822b", "#1b1b1b", "#333333", "#8a8a8a"
_ROW_IN = 0.21  # inches
_WIDTH_IN = 13.0
_DPI = 110


class NoPlot(Exception):
    """matplotlib is not there, or there is nothing to draw."""


def plot(report: Report, path: Path) -> None:
    """Draw every row that has a baseline as a bar of value / baseline, on a log axis, and save it as PNG. Raises NoPlot."""
    try:
        import matplotlib
    except ImportError:
        raise NoPlot(
            "no picture: matplotlib is not installed (pip install 'hivemind-swarm[bench]', or make bench)"
        ) from None
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    groups = [(one.topic.title, [row for row in one.rows if row.ratio]) for one in report.outcomes]
    groups = [(title, rows) for title, rows in groups if rows]
    if not groups:
        raise NoPlot("no picture: no row has a baseline")
    lines = sum(len(rows) + 1.6 for _, rows in groups)
    figure, axes = plt.subplots(figsize=(_WIDTH_IN, lines * _ROW_IN + 1.5), dpi=_DPI)
    try:
        _draw(axes, groups)
        _dress(axes, report, lines)
        figure.subplots_adjust(left=0.33, right=0.68, top=1 - 1.0 / figure.get_figheight(), bottom=0.02)
        figure.savefig(path, facecolor="white")
    finally:
        plt.close(figure)


def _draw(axes: Any, groups: list[tuple[str, list[Row]]]) -> None:
    """The bars, from the top down; names on the left, figures on the right."""
    place = 0.0
    beside = axes.get_yaxis_transform()  # x in parts of the axes' width, y in rows
    for title, rows in groups:
        place += 1.1
        axes.text(
            -0.01, place, title, transform=beside, fontsize=9.5, fontweight="bold", color=TEXT, ha="right", va="center"
        )
        place += 0.1
        for row in rows:
            place += 1
            ratio = row.ratio or 1.0
            good = ratio <= 1 if row.better == "less" else ratio >= 1
            axes.barh(place, ratio - 1, left=1, height=0.62, color=BETTER if good else WORSE)
            if row.target is not None and row.baseline_value:
                aim = row.target / row.baseline_value
                axes.plot([aim, aim], [place - 0.44, place + 0.44], color=TARGET, linewidth=2, solid_capstyle="butt")
            axes.text(-0.01, place, row.name, transform=beside, fontsize=7.5, color=TEXT, ha="right", va="center")
            axes.text(1.01, place, _figures(row), transform=beside, fontsize=7, color=TEXT, va="center")
        place += 0.4


def _figures(row: Row) -> str:
    mark = {True: "✓ ", False: "✗ ", None: ""}[row.met]
    return f"{mark}{_short(row.value)} {row.unit}   ({row.baseline}: {_short(row.baseline_value or 0)})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _dress(axes: Any, report: Report, lines: float) -> None:
    axes.set_xscale("log")
    axes.set_ylim(lines + 0.6, 0)
    axes.axvline(1, color=TEXT, linewidth=0.8)
    axes.xaxis.tick_top()
    axes.set_yticks([])
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("left", "right", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=8, colors=FAINT)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g} ×")
    machine = report.machine
    axes.figure.text(0.02, 1 - 0.28 / axes.figure.get_figheight(), "value / baseline of the same run", fontsize=12,
                     fontweight="bold", color=TEXT)  # fmt: skip
    said = (
        f"blue: better than the baseline, orange: not; black stroke: the target, ✓ met, ✗ missed.   "
        f"{report.began:%Y-%m-%d}, {machine.processor}, {machine.cores} cores, {machine.disk}, "
        f"load {report.loads[0]:.1f}–{max(report.loads):.1f}"
    )
    axes.figure.text(0.02, 1 - 0.50 / axes.figure.get_figheight(), said, fontsize=7.5, color=FAINT)
