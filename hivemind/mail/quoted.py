"""Extract a person's answer from a reply: remove the letter that their mail program quoted, and their signature.

Quoted letters are recognised by their form, in any language. If the form is ambiguous, the text is kept.
"""

from __future__ import annotations

import re

from hivemind.pattern import pattern

_FIELD = pattern(r"\*?[^\W\d_][\w-]{0,14}\s?:\*?\s")
_RULE = pattern(r"\s*(?:-{3,}[^-]{3,60}-{3,}|_{10,})\s*")
_TIME, _DATE = pattern(r"\d[:.h]\d\d"), pattern(r"\d[:.h]\d\d|\b\d{4}\b")
_ADDRESS = pattern(r"[^\s<>@]+@[^\s<>@]+")
_DEVICE = pattern(
    r"(?:Sent|Get|Gesendet|Von|Envoyé|Inviato|Enviado)\b.*\b(?:Outlook|iPhone|iPad|Android|Mail|Galaxy)\b.*"
)


def answer_text(body: str) -> str:
    """Return the text of a reply without quoted letters and signature, or the whole body if that would be empty."""
    lines = body.replace("\r\n", "\n").split("\n")
    lines = lines[
        : next((index for index in range(len(lines)) if _is_start_of_quoted_letter(lines, index)), len(lines))
    ]
    answer_lines: list[str] = []
    for previous_line, line in zip(["", *lines], lines, strict=False):
        if not line.startswith(">"):
            answer_lines.append(line)
        elif not previous_line.startswith(">"):
            _drop_attribution(answer_lines)
            answer_lines.append("")
    signature = next((index for index, line in enumerate(answer_lines) if line in ("-- ", "--")), len(answer_lines))
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in answer_lines[:signature])).strip()
    text_above, _, last_line = text.rpartition("\n")
    return (text_above.strip() if _DEVICE.fullmatch(last_line) else text) or body.strip()


def _is_start_of_quoted_letter(lines: list[str], index: int) -> bool:
    """Check whether a quoted letter begins at line `index`, without quote marks, as in mail by Outlook and Yahoo."""
    if _RULE.fullmatch(lines[index]):
        return sum(map(bool, map(_FIELD.match, lines[index + 1 : index + 5]))) >= 2
    if all(map(_FIELD.match, lines[index : index + 3])):
        head = "\n".join(lines[index : index + 4])
    elif re.search(r"<\S+>.*:\s*$", lines[index]) and not any(line.startswith(">") for line in lines[index:]):
        head = lines[index]
    else:
        return False
    return bool(_ADDRESS.search(head) and _TIME.search(head))


def _drop_attribution(answer_lines: list[str]) -> None:
    """Remove the attribution (author and date) above a quote. Mail programs wrap it to at most three lines."""
    while answer_lines and not answer_lines[-1].strip():
        answer_lines.pop()
    for count in (1, 2, 3):
        lines_above = answer_lines[-count:]
        if not answer_lines or not lines_above[-1].rstrip().endswith(":"):
            return
        if not all(map(str.strip, lines_above)):
            break
        if _DATE.search(" ".join(lines_above)):
            del answer_lines[-count:]
            return
    if _ADDRESS.search(answer_lines[-1]):
        answer_lines.pop()
