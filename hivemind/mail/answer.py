"""A person's answer: what they wrote in a reply, without the letter that their mail program has quoted, and their signature.

No list of languages: a quoted letter is known by its form. Where the form leaves doubt, the text stays.
"""

from __future__ import annotations

import re

__all__ = ["answer_text"]

_FIELD = re.compile(r"\*?[^\W\d_][\w-]{0,14}\s?:\*?\s")
_RULE = re.compile(r"\s*(?:-{3,}[^-]{3,60}-{3,}|_{10,})\s*")
_TIME, _DATE = re.compile(r"\d[:.h]\d\d"), re.compile(r"\d[:.h]\d\d|\b\d{4}\b")
_ADDRESS = re.compile(r"[^\s<>@]+@[^\s<>@]+")
_DEVICE = re.compile(
    r"(?:Sent|Get|Gesendet|Von|Envoyé|Inviato|Enviado)\b.*\b(?:Outlook|iPhone|iPad|Android|Mail|Galaxy)\b.*"
)


def answer_text(body: str) -> str:
    """Return the text of a reply. Where nothing is left of it, it is the whole body: who quotes has said something."""
    lines = body.replace("\r\n", "\n").split("\n")
    lines = lines[: next((at for at in range(len(lines)) if _begins_letter(lines, at)), len(lines))]
    written: list[str] = []
    for before, line in zip(["", *lines], lines, strict=False):
        if not line.startswith(">"):
            written.append(line)
        elif not before.startswith(">"):
            _drop_attribution(written)
            written.append("")
    signature = next((at for at, line in enumerate(written) if line in ("-- ", "--")), len(written))
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in written[:signature])).strip()
    above, _, last = text.rpartition("\n")
    return (above.strip() if _DEVICE.fullmatch(last) else text) or body.strip()


def _begins_letter(lines: list[str], at: int) -> bool:
    """Check whether the letter that is answered stands below without quote marks, as Outlook and Yahoo have it."""
    if _RULE.fullmatch(lines[at]):
        return sum(map(bool, map(_FIELD.match, lines[at + 1 : at + 5]))) >= 2
    if all(map(_FIELD.match, lines[at : at + 3])):
        head = "\n".join(lines[at : at + 4])
    elif re.search(r"<\S+>.*:\s*$", lines[at]) and not any(line.startswith(">") for line in lines[at:]):
        head = lines[at]
    else:
        return False
    return bool(_ADDRESS.search(head) and _TIME.search(head))


def _drop_attribution(written: list[str]) -> None:
    """Take away the line above a quote that says who wrote it, and when; mail programs wrap it to three lines at most."""
    while written and not written[-1].strip():
        written.pop()
    for count in (1, 2, 3):
        above = written[-count:]
        if not written or not above[-1].rstrip().endswith(":"):
            return
        if not all(map(str.strip, above)):
            break
        if _DATE.search(" ".join(above)):
            del written[-count:]
            return
    if _ADDRESS.search(written[-1]):
        written.pop()
