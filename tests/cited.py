"""Opens what a citation names, as a reader would: by code independent of how passages are cut, cited or verified.

And the documents that it is tried on: one of each format with all that makes places hard, and pages that Debian ships.
"""

from __future__ import annotations

import glob
import html
import io
import os
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from tests.sample import IS_WHOLE

__all__ = [
    "FORMATS",
    "SOURCES",
    "VARIATIONS",
    "Cited",
    "cited_in",
    "has",
    "lines_of",
    "opened",
    "pages_of",
    "pdf",
    "squeezed",
]

_UNSEEN = re.compile(
    r"<!--.*?-->|<(script|style)\b.*?</\1\s*>|<(?:[^>\"']|\"[^\"]*\"|'[^']*')*>", re.DOTALL | re.IGNORECASE
)
_QUOTE = re.compile(r"((?:^>.*\n)+)\n— `(.+):(\d+)(?:-(\d+))?` \(sha256 [0-9a-f]{12}\)$", re.MULTILINE)

Cited = tuple[str, str, int, int]
"""A quote, its file, its first and its last line."""


def cited_in(result: str) -> list[Cited]:
    """The quotes of a result.md."""
    return [
        ("\n".join(line[2:] for line in text.splitlines()), path, int(first), int(last or first))
        for text, path, first, last in _QUOTE.findall(result)
    ]


def squeezed(text: str) -> str:
    """A text without white space."""
    return "".join(text.split())


def has(text: str, quote: str) -> bool:
    """Check that a text has a quote, white space aside; around masked secrets, the text next to them."""
    if "[masked]" not in quote:
        return squeezed(quote) in squeezed(text)
    pieces = map(re.escape, squeezed(quote).split("[masked]"))
    return re.search(".{1,200}".join(pieces), squeezed(text)) is not None


def opened(path: Path, first: int, last: int) -> str:
    """Return the text that a reader sees in these lines of a text file or of the source of a page, or on these pages of a PDF."""
    lines = lines_of(path)
    assert 1 <= first <= last <= len(lines), f"{path} has {len(lines)} lines or pages"
    text = "\n".join(lines[first - 1 : last])
    if path.suffix == ".html":
        text = re.sub(r"<[a-zA-Z/][^>]*\Z", "", text)  # of a tag that ends below
    return html.unescape(_UNSEEN.sub(" ", text)) if path.suffix == ".html" else text


def lines_of(path: Path) -> list[str]:
    """The lines of a file, or the texts of a PDF's pages."""
    return _lines(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _lines(path: Path, _: int) -> list[str]:
    raw = path.read_bytes()
    if path.suffix == ".pdf":
        import pypdf

        return [page.extract_text() for page in pypdf.PdfReader(io.BytesIO(raw)).pages]
    return raw.decode("utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig").split("\n")


def pdf(*pages: str) -> bytes:
    """A PDF of the lines of these pages."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for number, text in enumerate(pages):
        lines = " T* ".join(f"({line}) Tj" for line in text.split("\n"))
        stream = f"BT /F1 12 Tf 14 TL 72 700 Td {lines} ET"
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>>>/Contents {5 + 2 * number} 0 R>>"
        )
        objects.append(f"<</Length {len(stream)}>>stream\n{stream}\nendstream")
    out, offsets = "%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    return (
        f"{out}xref\n0 {size}\n0000000000 65535 f \n{table}trailer<</Size {size}/Root 1 0 R>>\nstartxref\n{len(out)}\n%%EOF"
    ).encode()


_HTML = """<!doctype html>
<html><head><meta charset="utf-8"><title>Of the NAME</title>
<style>
p { margin: 0 }
</style></head>
<body><!-- the NAME is hidden
here --><div class="a
b">
<p>The NAME of the harbour was
painted in <em>March</em> of
last year &amp; again in Gr&ouml;&szlig;e 漢字.</p>
<p>Its captain <a
href="x.html">lives</a> in
Bremerhaven.</p>
</div>
<ul>
<li>The first NAME hangs
  <ul><li>below the second
  one</li></ul>
and above the third</li>
<li>a short item
</ul>
<table>
<tr><th>NAME</th><th>price</th></tr>
<tr><td>small</td>
<td>12&nbsp;&euro;</td></tr>
</table>
<pre>

NAME = 1
    if deep:

        dive()
</pre>
Bare words of the NAME
over two lines<br>
and a third
<dl><dt>paint
<dd>who paints the NAME
is paid
</dl>
<blockquote><p>The NAME
sinks.</p><p>It rises.</p></blockquote>
<script>
var hidden = "<p>NAME</p>";
</script>
<p>The captain of the NAME
is Wilhelmina"""

_MARKDOWN = """---
title: Of the NAME
tags: [harbour]
---
# Of the NAME

The NAME of the harbour was
painted in *March* of last year,
in Größe 漢字. Its captain lives
in Bremerhaven.

* The first NAME hangs
  * below the second
    one

  and above the third
* a short item

| NAME  | price |
|-------|-------|
| small | 12 €  |

```python
NAME = 1

    if deep:
```

> The NAME
> sinks.

    indented = NAME
    code = 2

Under the line
--------------
The captain of the NAME
is Wilhelmina"""

_RST = """Of the NAME
===========

The NAME of the harbour was
painted in *March* of last year,
in Größe 漢字. Its captain lives
in Bremerhaven.

* The first NAME hangs

  * below the second
    one

.. code-block:: python

   NAME = 1

   if deep:

======  =====
NAME    price
======  =====
small   12 €
======  =====

Last
----
The captain of the NAME
is Wilhelmina"""

_PYTHON = '''"""Of the NAME.

It was painted
in March 漢字.
"""

import os


class Harbour:
    """The NAME lies
    here."""

    def paint(self, colour):
        # who paints the NAME
        return (colour,
                os.sep)


def captain():
    """The captain of the NAME is
    Wilhelmina."""
    return "Wilhelmina"'''

_C = """/* Of the NAME:
 * painted in March 漢字. */
int paint(int colour)
{
    return colour;   /* the NAME */
}

// The captain of the NAME
// is Wilhelmina
char *captain = "Wilhelmina";"""

FORMATS: dict[str, Callable[[str], bytes]] = {
    "html": lambda name: _HTML.replace("NAME", name).encode(),
    "md": lambda name: _MARKDOWN.replace("NAME", name).encode(),
    "rst": lambda name: _RST.replace("NAME", name).encode(),
    "py": lambda name: _PYTHON.replace("NAME", name).encode(),
    "c": lambda name: _C.replace("NAME", name).encode(),
    "txt": lambda name: re.sub(r"[#*`>|]", "", _MARKDOWN).replace("NAME", name).encode(),
    "pdf": lambda name: pdf(
        f"Of the {name}", f"The {name} of the harbour was\npainted in March\nof last year. Its captain\nlives\nhere.",
        f"The captain of the {name}\nis Wilhelmina",
    ),
}  # fmt: skip
"""File endings, each with a document of that format about NAME and its captain, Wilhelmina."""

VARIATIONS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda raw: raw + b"\n",
    "no end of line": lambda raw: raw,
    "CRLF": lambda raw: raw.replace(b"\n", b"\r\n") + b"\r\n",
    "BOM": lambda raw: b"\xef\xbb\xbf" + raw + b"\n",
    "UTF-16": lambda raw: (raw.decode() + "\n").encode("utf-16"),
    "long lines": lambda raw: b"\n\n".join(b" ".join(block.split(b"\n")) for block in raw.split(b"\n\n")),
}
"""Variations of files of every format: of a PDF only `plain` and `no end of line`."""

SOURCES = {
    "git-doc": ("/usr/share/doc/git-doc", 1),
    "debian-policy": ("/usr/share/doc/debian-policy", 1),
    "python3-doc": ("/usr/share/doc/python3-doc/html", 4),
    "the Rust book": ("/usr/share/doc/rust/html/book", 4),
    "the Rust book of rustup": ("~/.rustup/toolchains/*/share/doc/rust/html/book", 4),
}
"""The folder of a package's pages, and the step between the pages looked at (all of 75 MB take two minutes)."""
SHARE = 1 if IS_WHOLE else 8
"""Of these, the sample has every n-th."""

PDF = Path("/usr/share/doc/debian-policy/fhs/fhs-3.0.pdf.gz")
"""A PDF of fifty pages that debian-policy ships."""


def pages_of(source: str, every: int | None = None) -> Iterator[Path]:
    """The HTML pages of a source, as separate files, in order; none if it is not installed."""
    pattern, share = SOURCES[source]
    for folder in glob.glob(os.path.expanduser(pattern)):
        pages = sorted(path for path in Path(folder).rglob("*.html") if path.is_file() and not path.is_symlink())
        yield from pages[:: every or share * SHARE]
