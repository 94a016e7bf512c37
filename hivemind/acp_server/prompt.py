"""An editor's prompt as the text of a task. Mentioned files become paths in the text; their contents become attachments."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from hivemind.boundary import boundary
from hivemind.hive import Hive

_MAX_COPY_BYTES = 32 << 20


@dataclass(slots=True)
class Prompt:
    """A prompt as the text of a task, with a path at each place where a file was mentioned, and the files to attach."""

    text: str = ""
    attachments: list[Path | tuple[str, bytes]] = field(default_factory=list)

    def add(self, part: str) -> None:
        """Append a part of the text, after a space if two words or paths would touch."""
        is_glued = self.text[-1:].isalnum() or self.text[-1:] in ("`", ")")
        self.text += f" {part}" if is_glued and part[:1] and (part[0].isalnum() or part[0] in "`[") else part


def read_prompt(blocks: Any, hive: Hive) -> Prompt:
    """Return the prompt that consists of these content blocks. Raises Unreadable if one is invalid."""
    prompt = Prompt()
    with boundary("prompt"):
        for number, block in enumerate(blocks, 1):
            source = block.get("resource", block)
            content = str(source["text"]).encode() if "text" in source else None
            if (encoded := source.get("blob", source.get("data"))) is not None:
                content = base64.b64decode(encoded, validate=True)
            if block["type"] == "text":
                prompt.add(str(block["text"]))
            elif block["type"] in ("resource", "resource_link"):
                _add_file(prompt, str(source["uri"]), content, hive)
            else:
                name = f"{block['type']}-{number}.{block['mimeType'].rpartition('/')[2]}"
                prompt.attachments.append((name, content or b""))
                prompt.add(f"`{name}`")
    return prompt


def _add_file(prompt: Prompt, uri: str, content: bytes | None, hive: Hive) -> None:
    """Add the path (or address) of a mentioned file to the prompt. Attach the `content` that the editor sent; without it, attach
    a copy of the file if agents cannot read the file itself."""
    parts = urlsplit(uri)
    path, name = Path(unquote(parts.path)), unquote(parts.path).rpartition("/")[2].strip(". ")[:100]
    visible_path = _readable_path(path, hive) if parts.scheme == "file" else None
    if content is not None:
        prompt.attachments.append((name if name.isprintable() and name else "attachment", content))
    elif visible_path is None and parts.scheme == "file" and path.is_file() and path.stat().st_size <= _MAX_COPY_BYTES:
        prompt.attachments.append(path)
    lines = f" (lines {parts.fragment[1:].replace(':', '-')})" if parts.fragment.startswith("L") else ""
    prompt.add(f"`{visible_path or (path if parts.scheme == 'file' else uri)}`{lines}")


def _readable_path(path: Path, hive: Hive) -> str | None:
    """Return the path by which agents read a file, relative in a repository or the hive, absolute in another root. Return None if
    they cannot read it."""
    real_path = path.resolve()
    for root in (*hive.config.worktree_roots(hive.layout), hive.layout.root):
        if real_path.is_relative_to(root):
            return str(real_path.relative_to(root))
    return str(real_path) if _is_below(real_path, hive.config.read_roots(hive.layout)) else None


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def place_note(cwd: Path, hive: Hive) -> str:
    """Return a line for the task that names the editor's repository, if the hive has several; else an empty text."""
    repositories = hive.config.worktree_roots(hive.layout)
    repository = next((root for root in repositories if cwd.resolve().is_relative_to(root)), None)
    return "" if repository is None or len(repositories) < 2 else f"> Repository: `{repository.name}` ({repository})"


def unreadable_note(cwd: Path, hive: Hive) -> str:
    """Say that the agents cannot read the editor's folder, and what to do; an empty text if they can."""
    if _is_below(cwd.resolve(), [hive.layout.root, *hive.config.read_roots(hive.layout)]):
        return ""
    return (
        f"The agents of this hive cannot read {cwd}. To change that, write into {hive.layout.config}: "
        f"`roots: [{{path: {cwd}, worktree: true}}]`; then: `hivemind down` and `hivemind up`."
    )
