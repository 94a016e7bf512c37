"""An editor's prompt as the text of a task: mentioned files become paths in the text, their contents attachments."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from hivemind.boundary import boundary
from hivemind.config import HiveConfig
from hivemind.layout import Layout

_MAX_COPY_BYTES = 32 << 20


@dataclass(slots=True)
class Prompt:
    """The text of a prompt, in which each file has its place, and the files to attach."""

    text: str = ""
    attachments: list[Path | tuple[str, bytes]] = field(default_factory=list)

    def add(self, part: str) -> None:
        """Append a part of the text. A space keeps two words or mentions apart."""
        is_glued = self.text[-1:].isalnum() or self.text[-1:] in ("`", ")")
        self.text += f" {part}" if is_glued and part[:1] and (part[0].isalnum() or part[0] in "`[") else part


def read_prompt(blocks: Any, layout: Layout, config: HiveConfig) -> Prompt:
    """Return the prompt with these content blocks. Raises Unreadable if one is invalid."""
    prompt = Prompt()
    with boundary("prompt"):
        for number, block in enumerate(blocks, 1):
            match block["type"]:
                case "text":
                    prompt.add(str(block["text"]))
                case "resource_link":
                    _add_link(prompt, block, layout, config)
                case "resource":
                    _add_resource(prompt, block["resource"], layout, config)
                case kind:
                    name = f"{kind}-{number}{mimetypes.guess_extension(block['mimeType']) or ''}"
                    prompt.attachments.append((name, base64.b64decode(block["data"], validate=True)))
                    prompt.add(f"`{name}`")
    return prompt


def _add_link(prompt: Prompt, block: Mapping[str, Any], layout: Layout, config: HiveConfig) -> None:
    """Name a linked file. A file that the agents cannot read is attached as a copy."""
    path = _file_path(block["uri"])
    if path is None:
        prompt.add(f"[{block.get('name') or block['uri']}]({block['uri']})")
        return
    if _readable_path(path, layout, config) is None and path.is_file() and path.stat().st_size <= _MAX_COPY_BYTES:
        prompt.attachments.append(path)
    prompt.add(_mention(block["uri"], path, layout, config))


def _add_resource(prompt: Prompt, resource: Mapping[str, Any], layout: Layout, config: HiveConfig) -> None:
    """Attach the content that a file has in the editor, which may not be saved yet."""
    uri, path = str(resource["uri"]), _file_path(resource["uri"])
    content = (
        str(resource["text"]).encode() if "text" in resource else base64.b64decode(resource["blob"], validate=True)
    )
    prompt.attachments.append((_attachment_name(uri), content))
    prompt.add(f"`{_attachment_name(uri)}`" if path is None else _mention(uri, path, layout, config))


def _attachment_name(uri: str) -> str:
    name = unquote(urlsplit(uri).path).rpartition("/")[2].strip(". ")
    return name[:100] if name.isprintable() and name else "attachment.txt"


def _mention(uri: str, path: Path, layout: Layout, config: HiveConfig) -> str:
    fragment = urlsplit(uri).fragment
    visible_path = _readable_path(path, layout, config) or str(path)
    return f"`{visible_path}`" + (f" (lines {fragment.lstrip('L').replace(':', '-')})" if fragment[:1] == "L" else "")


def _file_path(uri: str) -> Path | None:
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" and parts.path.startswith("/") else None


def _readable_path(path: Path, layout: Layout, config: HiveConfig) -> str | None:
    """Return the path by which agents read a file: in a repository, below the hive, or in another root. None: they cannot."""
    real_path = path.resolve()
    for root in (*config.worktree_roots(layout), layout.root):
        if real_path.is_relative_to(root):
            return str(real_path.relative_to(root))
    return str(real_path) if _is_below(real_path, config.read_roots(layout)) else None


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def place_note(cwd: Path, layout: Layout, config: HiveConfig) -> str:
    """Return a line for the task that names the editor's repository, if the hive has several; else an empty text."""
    repositories = config.worktree_roots(layout)
    repository = next((root for root in repositories if cwd.resolve().is_relative_to(root)), None)
    return "" if repository is None or len(repositories) < 2 else f"> Repository: `{repository.name}` ({repository})"


def unreadable_note(cwd: Path, layout: Layout, config: HiveConfig) -> str:
    """Say that the agents cannot read the editor's folder, and what to do; an empty text if they can."""
    if _is_below(cwd.resolve(), [layout.root, *config.read_roots(layout)]):
        return ""
    return (
        f"The agents of this hive cannot read {cwd}. To change that, write into {layout.config}: "
        f"`roots: [{{path: {cwd}, worktree: true}}]`; then: `hivemind down` and `hivemind up`."
    )
