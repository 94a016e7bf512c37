"""The picture of a run: each figure that has a target as a bar, by how it compares with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.report import Report
from benchmarks.table import Row

__all__ = ["NoPlot", "plot"]

MET, MISSED, TEXT, FAINT = "#2a7f9e", "#d9822b", "#333333", "#8a8a8a"
_ROW_IN = 0.23  # inches
_WIDTH_IN = 13.0
_DPI = 110


class NoPlot(Exception):
    """matplotlib is missing, or no row can be drawn."""


def plot(report: Report, path: Path) -> None:
    """Draw how many times as good as its target each row is, on a log axis, and save it as PNG. Raises NoPlot."""
    try:
        import matplotlib
    except ImportError:
        raise NoPlot(
            "no picture: matplotlib is not installed (pip install 'hivemind-swarm[bench]', or make bench)"
        ) from None
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    groups = [(part.topic.title, [row for row in part.rows if row.target and row.value]) for part in report.outcomes]
    groups = [(title, rows) for title, rows in groups if rows]
    if not groups:
        raise NoPlot("no picture: no row has a target")
    lines = sum(len(rows) + 1.6 for _, rows in groups)
    figure, axes = plt.subplots(figsize=(_WIDTH_IN, lines * _ROW_IN + 1.5), dpi=_DPI)
    try:
        _draw(axes, groups)
        _dress(axes, report, lines)
        figure.subplots_adjust(left=0.36, right=0.64, top=1 - 1.0 / figure.get_figheight(), bottom=0.02)
        figure.savefig(path, facecolor="white")
    finally:
        plt.close(figure)


def _draw(axes: Any, groups: list[tuple[str, list[Row]]]) -> None:
    """The bars, from the top down; names on the left, figures on the right."""
    place = 0.0
    transform = axes.get_yaxis_transform()  # x in parts of the axes' width, y in rows
    for title, rows in groups:
        place += 1.2
        axes.text(-0.02, place, title, transform=transform, fontsize=10, fontweight="bold", ha="right", va="center")
        for row in rows:
            place += 1
            good = row.target / row.value if row.better == "less" else row.value / row.target
            axes.barh(place, good - 1, left=1, height=0.62, color=MET if row.met else MISSED)
            axes.text(-0.02, place, row.name, transform=transform, fontsize=8.5, color=TEXT, ha="right", va="center")
            axes.text(1.02, place, _figures(row), transform=transform, fontsize=8.5, color=TEXT, va="center")
        place += 0.4


def _figures(row: Row) -> str:
    bound = f"{'≤' if row.better == 'less' else '≥'} {_short(row.target or 0)}"
    rival = f"; {row.baseline} {_short(row.baseline_value)}" if row.baseline_value else ""
    return f"{_short(row.value)} {row.unit}   ({bound}{rival})"


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
    axes.figure.text(0.02, 1 - 0.28 / axes.figure.get_figheight(), "How many times as good as its target", fontsize=12,
                     fontweight="bold", color=TEXT)  # fmt: skip
    legend = (
        f"blue: met, orange: missed; in brackets the target, and the baseline of the same run.   "
        f"{report.began:%Y-%m-%d}, {machine.processor}, {machine.cores} cores, {machine.disk}, "
        f"load {report.loads[0]:.1f}–{max(report.loads):.1f}"
    )
    axes.figure.text(0.02, 1 - 0.50 / axes.figure.get_figheight(), legend, fontsize=7.5, color=FAINT)
