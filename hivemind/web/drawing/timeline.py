"""Who did what when: a lane for each agent, a bar for each turn; long pauses are folded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

from hivemind.boundary import Unreadable, boundary
from hivemind.frozen import frozen
from hivemind.taskrun.transcript import Transcript
from hivemind.web.drawing.svg import Shape, element, fitted, picture, told
from hivemind.words import duration

_WIDTH, _NAMES, _LANE, _TOP, _RIGHT = 960, 130, 26, 24, 16
_PAUSE_SHARE = 0.25  # a pause longer than this part of all work is folded
_PAUSE_WIDTH = 34
_LEAST = 3.0
_MOST = 2_000


@frozen
class Span:
    """A turn: who, from when to when (seconds), its number, what it called, in which step."""

    who: str
    begin: float
    end: float
    turn: int
    what: str = ""
    step: str = ""


def draw_timeline(spans: Sequence[Span], *, alone: bool = False) -> Shape:
    """The picture of the newest 2,000 turns."""
    shown = sorted(spans, key=lambda one: (one.begin, one.turn))[-_MOST:]
    if not shown:
        return picture(_WIDTH, _TOP, "No turns", alone=alone)
    lanes = list(dict.fromkeys(one.who for one in shown))
    stretches = _stretches(shown)
    work = sum(end - begin for begin, end in stretches) or 1.0
    room = max(200.0, _WIDTH - _NAMES - _RIGHT - _PAUSE_WIDTH * (len(stretches) - 1))
    height = _TOP + _LANE * len(lanes) + 22
    places, parts, x = [], [], float(_NAMES)
    for at, (begin, end) in enumerate(stretches):
        wide = (end - begin) / work * room
        places.append((begin, end, x, wide))
        if at:
            parts += _pause(x - _PAUSE_WIDTH / 2, begin - stretches[at - 1][1], height)
        x += wide + _PAUSE_WIDTH
    for at, who in enumerate(lanes):
        y = _TOP + at * _LANE
        parts.append(element("line", class_="rule", x1=_NAMES, x2=_WIDTH - _RIGHT, y1=y + _LANE / 2, y2=y + _LANE / 2))
        parts.append(element("text", fitted(who, _NAMES - 12, 12), class_="lane", x=0, y=y + _LANE / 2 + 4))
    for one in shown:
        begin, _, left, wide = next(place for place in places if place[0] <= one.begin <= place[1])
        scale = wide / max(place_end - begin for b, place_end, *_ in places if b == begin) if wide else 0.0
        x1 = left + (one.begin - begin) * scale
        length = max(_LEAST, (one.end - one.begin) * scale)
        y = _TOP + lanes.index(one.who) * _LANE + 5
        step = f", step {one.step}" if one.step else ""
        about = f"Turn {one.turn}, {one.who}{step}: {one.what or 'no call'}, {one.end - one.begin:.1f} s"
        bar = element("rect", element("title", told(about)), class_=f"span lane-{lanes.index(one.who) % 4}",
                      x=x1, y=y, width=length, height=_LANE - 10, rx=2)  # fmt: skip
        parts.append(bar)
    parts += _times(shown[0].begin, max(one.end for one in shown), height)
    return picture(
        _WIDTH, height, f"{len(shown)} turns of {', '.join(lanes)}", *parts, alone=alone, class_="drawing timeline"
    )


def spans_of(said: Transcript) -> list[Span]:
    """Who was at work when in a conversation: a span for each turn."""
    spans = []
    for one in said.turns:
        with suppress(Unreadable), boundary("turn"):
            if one.begun is not None:
                who, step = str(one.record.get("agent")), str(one.record.get("step") or "")
                calls = ", ".join(call["tool"] for call in one.calls)
                spans.append(Span(who, one.begun, one.begun + (one.seconds or 0.0), one.turn, calls, step))
    return spans


def _stretches(spans: Sequence[Span]) -> list[tuple[float, float]]:
    """From when to when something was going on, without the long pauses."""
    work = sum(one.end - one.begin for one in spans)
    longest = max(2.0, work * _PAUSE_SHARE)
    found: list[list[float]] = []
    for one in spans:
        if found and one.begin - found[-1][1] <= longest:
            found[-1][1] = max(found[-1][1], one.end)
        else:
            found.append([one.begin, max(one.end, one.begin + 0.001)])
    return [(begin, end) for begin, end in found]


def _pause(x: float, seconds: float, height: float) -> list[Shape]:
    text = element("text", duration(seconds), class_="pause", x=x, y=_TOP - 10, text_anchor="middle")
    return [element("line", class_="pause", x1=x, x2=x, y1=_TOP - 4, y2=height - 18), text]


def _times(first: float, last: float, height: float) -> list[Shape]:
    begin, end = (datetime.fromtimestamp(one, UTC).astimezone() for one in (first, last))
    form = "%H:%M:%S" if begin.date() == end.date() else "%Y-%m-%d %H:%M"
    return [
        element("text", f"{begin:{form}}", class_="time", x=_NAMES, y=height - 4),
        element("text", f"{end:{form}}", class_="time", x=_WIDTH - _RIGHT, y=height - 4, text_anchor="end"),
    ]
