"""Extract the text of a PDF. `extracted.pdf` runs this script with limits of time and memory.

The script reads the PDF from standard input and prints JSON: `title` and `pages`, or `error` (and `mend`). Its
arguments are the maximum numbers of characters and pages. It does not import hivemind.
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any


def main(max_characters: int, max_pages: int) -> dict[str, Any]:
    """Extract the PDF on standard input; return the object to print."""
    try:
        import pypdf

        reader = pypdf.PdfReader(io.BytesIO(sys.stdin.buffer.read()))
        if reader.is_encrypted and not reader.decrypt(""):
            return {"error": "it is encrypted", "mend": "save it without a password"}
        title, pages, remaining_characters = (
            str((reader.metadata or {"/Title": ""}).get("/Title") or "").strip(),
            [],
            max_characters,
        )
        for page in reader.pages:
            text = page.extract_text()
            pages.append(text.encode("utf-8", "replace").decode())
            remaining_characters -= len(text)
            if remaining_characters < 0 or len(pages) > max_pages:
                return {"error": f"more than {max_characters} characters or {max_pages} pages", "mend": "split it"}
        return {"title": title.encode("utf-8", "replace").decode(), "pages": pages}
    except MemoryError:
        return {"error": "MemoryError"}
    except Exception as error:  # a damaged file can raise any exception
        return {"error": f"{type(error).__name__}: {error}"[:300]}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
