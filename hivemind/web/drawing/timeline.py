"""Draws a timeline with a row for each agent and a bar for each turn. Long pauses are shortened."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

from hivemind.boundary import Unreadable, boundary
from hivemind.frozen import frozen
from hivemind.taskrun.transcript import Transcript
from hivemind.web.drawing.svg import Shape, element, fit_text, masked_line, picture
from hivemind.words import duration

_WIDTH, _NAME_WIDTH, _LANE_HEIGHT, _TOP_MARGIN, _RIGHT_MARGIN = 960, 130, 26, 24, 16
_PAUSE_SHARE = 0.25  # a pause longer than this share of all work is shortened
_PAUSE_WIDTH = 34
_MIN_BAR_WIDTH = 3.0
_MAX_TURNS = 2_000


@frozen
class Span:
    """A turn of an agent: its begin and end in seconds since 1970, its number, its calls and its step."""

    agent: str
    begin: float
    end: float
    turn: int
    calls: str = ""
    step: str = ""


def draw_timeline(spans: Sequence[Span], *, is_standalone: bool = False) -> Shape:
    """Draw the timeline of the newest 2,000 turns. A standalone drawing, for a file, contains the style sheet."""
    visible_spans = sorted(spans, key=lambda span: (span.begin, span.turn))[-_MAX_TURNS:]
    if not visible_spans:
        return picture(_WIDTH, _TOP_MARGIN, "No turns", is_standalone=is_standalone)
    lanes = list(dict.fromkeys(span.agent for span in visible_spans))
    stretches = _work_stretches(visible_spans)
    work = sum(end - begin for begin, end in stretches) or 1.0
    work_width = max(200.0, _WIDTH - _NAME_WIDTH - _RIGHT_MARGIN - _PAUSE_WIDTH * (len(stretches) - 1))
    height = _TOP_MARGIN + _LANE_HEIGHT * len(lanes) + 22
    places, parts, x = [], [], float(_NAME_WIDTH)
    for index, (begin, end) in enumerate(stretches):
        width = (end - begin) / work * work_width
        places.append((begin, end, x, width))
        if index:
            parts += _pause_shapes(x - _PAUSE_WIDTH / 2, begin - stretches[index - 1][1], height)
        x += width + _PAUSE_WIDTH
    for index, agent in enumerate(lanes):
        y = _TOP_MARGIN + index * _LANE_HEIGHT
        parts.append(
            element(
                "line",
                class_="rule",
                x1=_NAME_WIDTH,
                x2=_WIDTH - _RIGHT_MARGIN,
                y1=y + _LANE_HEIGHT / 2,
                y2=y + _LANE_HEIGHT / 2,
            )
        )
        parts.append(
            element("text", fit_text(agent, _NAME_WIDTH - 12, 12), class_="lane", x=0, y=y + _LANE_HEIGHT / 2 + 4)
        )
    for span in visible_spans:
        begin, _, stretch_x, width = next(place for place in places if place[0] <= span.begin <= place[1])
        scale = width / max(place_end - begin for b, place_end, *_ in places if b == begin) if width else 0.0
        x1 = stretch_x + (span.begin - begin) * scale
        length = max(_MIN_BAR_WIDTH, (span.end - span.begin) * scale)
        y = _TOP_MARGIN + lanes.index(span.agent) * _LANE_HEIGHT + 5
        step = f", step {span.step}" if span.step else ""
        description = f"Turn {span.turn}, {span.agent}{step}: {span.calls or 'no call'}, {span.end - span.begin:.1f} s"
        bar = element("rect", element("title", masked_line(description)), class_=f"span lane-{lanes.index(span.agent) % 4}",
                      x=x1, y=y, width=length, height=_LANE_HEIGHT - 10, rx=2)  # fmt: skip
        parts.append(bar)
    parts += _time_labels(visible_spans[0].begin, max(span.end for span in visible_spans), height)
    return picture(
        _WIDTH,
        height,
        f"{len(visible_spans)} turns of {', '.join(lanes)}",
        *parts,
        is_standalone=is_standalone,
        class_="drawing timeline",
    )


def spans_of(transcript: Transcript) -> list[Span]:
    """Return a span for each turn of a transcript that has a time."""
    spans = []
    for turn in transcript.turns:
        with suppress(Unreadable), boundary("turn"):
            if turn.started_at is not None:
                agent, step = str(turn.record.get("agent")), str(turn.record.get("step") or "")
                calls = ", ".join(call["tool"] for call in turn.calls)
                spans.append(
                    Span(agent, turn.started_at, turn.started_at + (turn.seconds or 0.0), turn.turn, calls, step)
                )
    return spans


def _work_stretches(spans: Sequence[Span]) -> list[tuple[float, float]]:
    """Join spans with short pauses between them into stretches of work. Return the begin and end of each stretch."""
    work = sum(span.end - span.begin for span in spans)
    max_pause = max(2.0, work * _PAUSE_SHARE)
    stretches: list[list[float]] = []
    for span in spans:
        if stretches and span.begin - stretches[-1][1] <= max_pause:
            stretches[-1][1] = max(stretches[-1][1], span.end)
        else:
            stretches.append([span.begin, max(span.end, span.begin + 0.001)])
    return [(begin, end) for begin, end in stretches]


def _pause_shapes(x: float, seconds: float, height: float) -> list[Shape]:
    text = element("text", duration(seconds), class_="pause", x=x, y=_TOP_MARGIN - 10, text_anchor="middle")
    return [element("line", class_="pause", x1=x, x2=x, y1=_TOP_MARGIN - 4, y2=height - 18), text]


def _time_labels(first: float, last: float, height: float) -> list[Shape]:
    begin, end = (datetime.fromtimestamp(seconds, UTC).astimezone() for seconds in (first, last))
    time_format = "%H:%M:%S" if begin.date() == end.date() else "%Y-%m-%d %H:%M"
    return [
        element("text", f"{begin:{time_format}}", class_="time", x=_NAME_WIDTH, y=height - 4),
        element(
            "text", f"{end:{time_format}}", class_="time", x=_WIDTH - _RIGHT_MARGIN, y=height - 4, text_anchor="end"
        ),
    ]
