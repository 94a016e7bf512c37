"""No way into the documents takes a secret along."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from hivemind.documents import Docmem, DocmemError, importing
from hivemind.masking import MASK, mask

TOKEN = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\nabc+/=\n-----END RSA PRIVATE KEY-----"
SECRET = f"the token {TOKEN}\n{KEY}\nend."


def node_of(docmem: Docmem, text: str = "x") -> str:
    return docmem.append_child(docmem.create_root().id, "m", "n", "v", text).id


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


WAYS: dict[str, Callable[[Docmem, Path], object]] = {
    "root": lambda docmem, _: docmem.create_root(text=SECRET, context_value=TOKEN),
    "append": lambda docmem, _: docmem.append_child(docmem.create_root().id, "m", TOKEN, TOKEN, SECRET),
    "insert": lambda docmem, _: docmem.insert_before(node_of(docmem), "m", "n", TOKEN, SECRET),
    "update": lambda docmem, _: docmem.update_content(node_of(docmem), SECRET),
    "context": lambda docmem, _: docmem.update_context(node_of(docmem), "m", "n", TOKEN),
    "note": lambda docmem, _: docmem.add_note(node_of(docmem), SECRET, TOKEN),
    "summary": lambda docmem, _: docmem.add_summary(*[node_of(docmem)] * 2, SECRET),
    "summarize": lambda docmem, _: docmem.summarize(docmem.root_of(node_of(docmem)).id, lambda *_: SECRET),
    "thread": lambda docmem, _: docmem.keep_thread(TOKEN, [importing.Letter(TOKEN, TOKEN, "2026", SECRET)], TOKEN),
    "toml": lambda docmem, _: docmem.import_toml(
        f'[[node]]\ncontext_type = "m"\ncontext_name = "n"\ncontext_value = "{TOKEN}"\ntext = """{SECRET}"""'
    ),
    "md": lambda docmem, here: docmem.import_file(
        write(here / "a.md", f"---\ntitle: {TOKEN}\ntags: [{TOKEN}]\n---\n{SECRET}")
    ),
    "rst": lambda docmem, here: docmem.import_file(write(here / "a.rst", SECRET)),
    "py": lambda docmem, here: docmem.import_file(write(here / "a.py", f'A = """{SECRET}"""')),
    "html": lambda docmem, here: docmem.import_file(
        write(here / "a.html", f"<title>{TOKEN}</title><pre>{SECRET}</pre>")
    ),
}


def assert_no_secret_in(folder: Path) -> None:
    for path in folder.glob("documents.db*"):
        content = path.read_bytes() if path.is_file() else b""
        assert TOKEN.encode() not in content, path
        assert b"MIIEpAIBAAKCAQEA7" not in content, path


@pytest.mark.parametrize("way", WAYS)
def test_a_secret_is_masked_before_it_is_stored(way: str, docmem: Docmem, tmp_path: Path) -> None:
    WAYS[way](docmem, tmp_path)
    assert_no_secret_in(tmp_path)
    assert any(MASK in node.text for root in docmem.roots() for node in docmem.serialize(root.id)) or way == "context"


@pytest.mark.skipif(importlib.util.find_spec("pypdf") is None, reason="needs the extra docs")
def test_a_secret_in_a_pdf_is_masked_before_it_is_stored(
    docmem: Docmem, tmp_path: Path, pdf_of: Callable[..., bytes]
) -> None:
    docmem.import_file(write(tmp_path / "a.pdf", pdf_of(f"the token {TOKEN} here")))
    assert_no_secret_in(tmp_path)


def test_what_is_masked_is_known_again(docmem: Docmem) -> None:
    letter = importing.Letter("1", "ann", "2026", SECRET)
    root = docmem.keep_thread("s", [letter], "<1@h>")
    docmem.keep_thread("s", [letter], "<1@h>")
    assert len(docmem.serialize(root.id)) == 2
    node = docmem.append_child(root.id, "m", "n", "v", SECRET)
    assert node.text == mask(SECRET)
    assert docmem.update_content(node.id, SECRET, node.hash).hash == node.hash


def test_an_id_is_no_secret(docmem: Docmem) -> None:
    with pytest.raises(DocmemError, match="secret") as refused:
        docmem.create_root(TOKEN)
    assert TOKEN not in str(refused.value)
