"""Tools for files: read in the hive and its roots, write to the task's folder, knowledge/ and roots open for writing."""

from __future__ import annotations

import codecs
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from io import StringIO
from typing import Any

from pydantic import ConfigDict, Field

from hivemind.boundary import boundary
from hivemind.coordination.reservations import check_pattern, escape, overlap
from hivemind.documents.formats import decode_text, format_of
from hivemind.documents.formats.extracted import Extract, pdf
from hivemind.documents.formats.outline import MAX_FILE_BYTES
from hivemind.masking import MASK, Masker, mask
from hivemind.minds.pictures import MAX_PICTURE_BYTES, media_type, save_picture
from hivemind.tools.excerpt import ContinuationCall
from hivemind.tools.patch import FilePatch, patched, read_patch
from hivemind.tools.path_access import (
    MAX_READ_BYTES,
    ToolPath,
    WritableFile,
    is_readable,
    open_place,
    read_bytes,
    readable,
    writable,
)
from hivemind.tools.tool import Arguments, ToolProblem, as_call, tool
from hivemind.tools.tool_context import ToolContext

MAX_RESULTS = 200
MAX_TEXT_BYTES = 4_194_304
"""The maximal size of a file that is read whole, edited or searched."""
READING_S = 60
_PART_BYTES = 65_536
_HEAD_BYTES = 16


class ReadFile(Arguments):
    path: str
    start_line: int | None = Field(None, ge=1, description="first line, counted from 1")
    end_line: int | None = Field(None, ge=1, description="last line, inclusive")


class WriteFile(Arguments):
    model_config = ConfigDict(json_schema_extra={"required": ["path", "text"]})

    path: str = Field(
        description="relative to your worktree or the task's folder, or knowledge/…, or in a root open for writing"
    )
    text: str | None = Field(None, description="the whole text")
    step: str | None = None


class EditFile(Arguments):
    path: str
    old: str = Field(min_length=1, description="the text to replace; must occur exactly once, unless all is true")
    new: str
    all: bool = Field(False, description="replace every occurrence")


class ApplyPatch(Arguments):
    patch: str = Field(
        min_length=1, description="a unified diff: --- a/PATH, +++ b/PATH, @@ hunks with lines of context"
    )


class ListFiles(Arguments):
    path: str = Field(".", description="default: your worktree, else the whole hive")
    glob: str | None = Field(None, description="only these files, like *.py or src/**/*.ts below the folder")


def _file_text(result: Mapping[str, Any]) -> str:
    if "picture" in result:
        picture_note = "shown below" if result["shown"] else "which you cannot see"
        return f"a picture ({result['picture']['kind']}, {result['bytes']:,} bytes), {picture_note}"
    part, lines = str(result["text"]), result["lines"]
    if "start_line" in result:
        return f"lines {result['start_line']:,} to {result['end_line']:,} of {lines:,}\n{part}"
    return part or "(an empty file)"


def _continuation(result: Mapping[str, Any]) -> ContinuationCall:
    # The text of a part begins with a line that says which lines of the file it shows.
    skipped_lines = result.get("start_line", 1) - 1 - ("start_line" in result)
    return lambda first, last: as_call(
        "read_file", path=result["path"], start_line=skipped_lines + first, end_line=skipped_lines + last
    )


@tool(text=_file_text, continuation=_continuation, is_read_only=True)
def read_file(context: ToolContext, arguments: ReadFile) -> dict[str, Any]:
    """Read a text file of the hive or some of its lines, or pages of a PDF, or look at a picture."""
    place = readable(context, arguments.path)
    if (picture := _picture(context, place)) is not None:
        return picture
    first, last = arguments.start_line or 1, arguments.end_line
    part = _FilePart(first, last)
    with context.pulse.busy(READING_S):
        digest = None if format_of(place.names[-1]) == "pdf" else part.read(context, place)
        if digest is None:
            part = _FilePart(first, last)
            digest = part.read_decoded(context, place)
    fields: dict[str, Any] = {
        "path": display_path(context, place),
        "digest": digest,
        "text": "".join(part.selected),
        "lines": part.line_count,
    }
    if arguments.start_line or arguments.end_line or part.cut:
        end = first - 1 + len(part.selected)
        fields |= {
            "start_line": first,
            "end_line": min(last or part.line_count, part.line_count) if not part.cut else end,
        }
    return fields


def _picture(context: ToolContext, place: ToolPath) -> dict[str, Any] | None:
    """Return the fields of a picture; None for another file. Save a copy, so later changes do not affect the conversation."""
    with open_place(context, place) as stream:
        raw = stream.read(_HEAD_BYTES)
        if media_type(raw) is None:
            return None
        raw += stream.read(MAX_PICTURE_BYTES)
    layout = context.hive.layout
    picture = save_picture(layout.root, layout.agent_state(context.agent) / "pictures", raw)
    if picture is None:
        raise ToolProblem(
            f"is a picture of more than {MAX_PICTURE_BYTES >> 20} MiB", location=display_path(context, place)
        )
    fields = {"path": display_path(context, place), "digest": picture["sha256"], "bytes": len(raw)}
    return {**fields, "picture": picture, "shown": context.shows_pictures}


class _FilePart:
    """Lines `first` to `last` of a file of any size, at most 256 KiB. Secrets are masked in the whole file, also across lines."""

    def __init__(self, first: int, last: int | None) -> None:
        self.selected: list[str] = []
        self.line_count = 0
        self.cut = False
        self._first, self._last = first, last
        self._room = MAX_READ_BYTES
        self._line = ""

    def read(self, context: ToolContext, place: ToolPath) -> str | None:
        """Read the file and return the digest of its bytes, None if the file is not UTF-8."""
        # a command's output may contain bytes that are not text
        is_output = "artifacts" in place.names
        decoder = codecs.getincrementaldecoder("utf-8")("replace" if is_output else "strict")
        masker, digest = Masker(), hashlib.sha256()
        with open_place(context, place) as stream:
            try:
                while data := stream.read(_PART_BYTES):
                    digest.update(data)
                    self._feed(masker.feed(decoder.decode(data)))
                self._feed(masker.feed(decoder.decode(b"", True)) + masker.close())
            except UnicodeDecodeError:
                return None
        if self._line:
            self._add_line(self._line)
        return digest.hexdigest()

    def read_decoded(self, context: ToolContext, place: ToolPath) -> str:
        """Read a text in another encoding than UTF-8, or a PDF with each page as one line. Return the digest of the file's bytes.

        Raises UserError if the file cannot be decoded, or is too large.
        """
        raw, path = read_bytes(context, place, MAX_FILE_BYTES), display_path(context, place)
        with boundary("document", path):
            extract = pdf(raw, path) if format_of(path) == "pdf" else None
            text = mask(decode_text(raw, path)) if extract is None else _page_lines(extract)
        self._feed(text)
        if self._line:
            self._add_line(self._line)
        return hashlib.sha256(raw).hexdigest()

    def _feed(self, text: str) -> None:
        for piece in StringIO(text):
            # Keep as much of a line as fits, and one character more, which shows that the line is longer.
            self._line += piece[: max(0, MAX_READ_BYTES + 1 - len(self._line))]
            if piece.endswith("\n"):
                self._add_line(self._line)
                self._line = ""

    def _add_line(self, line: str) -> None:
        self.line_count += 1
        if self.cut or self.line_count < self._first or (self._last is not None and self.line_count > self._last):
            return
        if len(line) > self._room and self.selected:
            self.cut = True
            return
        self.selected.append(line[: self._room])
        self._room -= len(line)


@tool(text=lambda result: f"wrote {result['path']}, {result['bytes']:,} bytes")
def write_file(context: ToolContext, arguments: WriteFile) -> dict[str, Any]:
    """Write a whole text file: in your worktree or the task's folder, or in knowledge/ or a root if the path names it."""
    target = writable(context, arguments.path)
    text = _draft_text(context, arguments) if arguments.text is None else arguments.text
    with target.reserved(context, "write_file"):
        if arguments.text is not None and MASK in text:
            _refuse_mask(context, target, read_text(context, target.place) if target.exists else "", text)
        target.write(context, text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    path = display_path(context, target.place)
    if arguments.step is not None:
        step = context.step(arguments.step)
        artifact_path = path if context.worktrees else os.path.relpath(target.place.path, context.work.task.path)
        meta = {"artifact": artifact_path, "digest": digest}
        context.work.trail.add_card(step, "note", f"wrote {artifact_path}", title=artifact_path, meta=meta)
        receipt = {"kind": "LINK", "text": context.hive.layout.relative(target.place.path), "digest": digest}
        context.hive.steps.capture(step.id, receipt, **context.step_authority(step))
    return {"path": path, "digest": digest, "bytes": len(text.encode())}


def _draft_text(context: ToolContext, arguments: WriteFile) -> str:
    """Return the draft of the task's result, for a `write:` step without a text. Raises ToolProblem for any other call."""
    todo = context.step(arguments.step).todo if arguments.step is not None else None
    if todo is None or todo.kind != "write" or todo.argument != {"path": arguments.path, "text": None}:
        raise ToolProblem("write_file: text is missing")
    return context.work.draft("")


def _edit_text(result: Mapping[str, Any]) -> str:
    count = result["replaced"]
    return f"edited {result['path']}{'' if count == 1 else f': {count} places'}"


@tool(text=_edit_text)
def edit_file(context: ToolContext, arguments: EditFile) -> dict[str, Any]:
    """Replace one passage of a text file, or with `all` every occurrence of the passage."""
    target = writable(context, arguments.path)
    with target.reserved(context, "edit_file"):  # reserved from reading to writing
        text = read_text(context, target.place)
        old, new = (_with_ends_of(text, part) for part in (arguments.old, arguments.new))
        count = text.count(old)
        if count == 0 or (count > 1 and not arguments.all):
            raise ToolProblem(
                f"the text to replace occurs {count} times, not once", location=arguments.path,
                remedy="include more of the text around it, or pass all: true" if count else "read_file shows the current text",
            )  # fmt: skip
        new_text = text.replace(old, new)
        _refuse_mask(context, target, text, new_text)
        target.write(context, new_text)
    digest = hashlib.sha256(new_text.encode()).hexdigest()
    return {"path": display_path(context, target.place), "digest": digest, "replaced": count}


def _has_crlf(text: str) -> bool:
    return "\r\n" in text and text.count("\n") == text.count("\r\n")


def _with_ends_of(text: str, part: str) -> str:
    """Return `part` with CRLF line ends if all of the text's are CRLF, because minds write LF; else unchanged."""
    return part.replace("\r\n", "\n").replace("\n", "\r\n") if _has_crlf(text) else part


def _changes_text(result: Mapping[str, Any]) -> str:
    return "\n".join(f"{file['change']} {file['path']}" for file in result["files"])


@tool(text=_changes_text)
def apply_patch(context: ToolContext, arguments: ApplyPatch) -> dict[str, Any]:
    """Change, create, rename and delete text files with one unified diff, as `git diff` writes it. Applies the whole patch, or
    nothing if one hunk does not fit. Lines of context must match exactly; line numbers may be wrong."""
    changes = [_FileChange(context, file) for file in read_patch(arguments.patch)]
    paths = [target.place.path for change in changes for target in change.targets]
    if repeated_path := next((path for at, path in enumerate(paths) if path in paths[:at]), None):
        raise ToolProblem("is in the patch twice", location=context.hive.layout.relative(repeated_path))
    with ExitStack() as reserved:
        for change in changes:
            for target in change.targets:
                reserved.enter_context(target.reserved(context, "apply_patch"))
        for change in changes:
            change.prepare(context)
        with ExitStack() as undo:
            for change in changes:
                change.apply(context, undo)
            undo.pop_all()
    return {
        "files": [
            {"path": display_path(context, change.targets[-1].place), "change": change.kind} for change in changes
        ]
    }


class _FileChange:
    """The change of one file by a patch. A created file has no source, a deleted file no target."""

    def __init__(self, context: ToolContext, file: FilePatch) -> None:
        self._file = file
        self._source = None if file.old_path is None else writable(context, file.old_path)
        keeps_path = file.new_path == file.old_path
        self._target = (
            self._source if keeps_path else None if file.new_path is None else writable(context, file.new_path)
        )
        candidates = (self._source, None if keeps_path else self._target)
        self.targets: tuple[WritableFile, ...] = tuple(target for target in candidates if target is not None)
        self._before = self._after = ""

    @property
    def kind(self) -> str:
        if self._source is None:
            return "made"
        if self._target is None:
            return "deleted"
        return "changed" if self._target is self._source else f"moved {self._file.old_path} to"

    def prepare(self, context: ToolContext) -> None:
        """Compute the new text before any file is written. Raises UserError if the change cannot be made."""
        if self._target is not None and self._target is not self._source and self._target.exists:
            raise ToolProblem("already exists", location=self._file.new_path)
        if self._source is not None:
            self._before = read_text(context, self._source.place)
        before = self._before.replace("\r\n", "\n") if _has_crlf(self._before) else self._before
        self._after = _with_ends_of(self._before, patched(before, self._file))
        if self._target is None and self._after:
            raise ToolProblem("has more lines than the patch deletes", location=self._file.old_path)
        if self._target is not None:
            _refuse_mask(context, self._target, self._before, self._after)

    def apply(self, context: ToolContext, undo: ExitStack) -> None:
        """Write the change to the disk, and add callbacks to `undo` that revert it."""
        source, target, before = self._source, self._target, self._before
        if target is not None:
            target.write(context, self._after, like=source)
            if target is source:
                undo.callback(target.write, context, before)
                return
            undo.callback(target.delete, context)
        if source is not None:
            source.delete(context)
            undo.callback(source.write, context, before)


def _refuse_mask(context: ToolContext, target: WritableFile, before: str, after: str) -> None:
    """Raise ToolProblem if the new text has more masks than the old text. A mask stands for a secret that the mind does not see;
    written to the file, it would overwrite the secret."""
    if after.count(MASK) > before.count(MASK):
        raise ToolProblem(
            f"contains {MASK}, which hides a secret from you and would overwrite it",
            location=display_path(context, target.place), remedy="edit the lines around it with edit_file",
        )  # fmt: skip


def _listing(result: Mapping[str, Any]) -> str:
    more = [f"… and more: name a folder or a glob ({MAX_RESULTS} are listed)"] if result["cut"] else []
    return "\n".join([*result["files"], *more]) or "no files"


@tool(text=_listing, is_read_only=True)
def list_files(context: ToolContext, arguments: ListFiles) -> dict[str, Any]:
    """List the files below a folder of the hive, at most 200."""
    top = readable(context, arguments.path)
    matches_glob = path_filter(top, arguments.glob)
    names: list[str] = []
    for place in walk(context, top):
        if not matches_glob(place):
            continue
        if len(names) == MAX_RESULTS:
            return {"files": names, "cut": True}
        names.append(display_path(context, place))
    return {"files": names, "cut": False}


def _page_lines(extract: Extract) -> str:
    """Return the text of a PDF with one line for each page."""
    pages = {number: list[str]() for number in range(1, max(last for _, last in [(0, 0), *extract.places]) + 1)}
    for piece, (number, _) in zip(extract.pieces, extract.places, strict=True):
        pages[number] += extract.text[piece.start : piece.end].split()
    return "\n".join(" ".join(words) for words in pages.values())


def path_pattern(glob: str) -> str:
    """Return a glob as a path pattern. A glob without `/` matches names at any depth. Raises UserError for an invalid glob."""
    return check_pattern(glob if "/" in glob else f"**/{glob}")


def path_filter(top: ToolPath, glob: str | None) -> Callable[[ToolPath], bool]:
    """Return a function that checks whether a path below `top`, or the file `top` itself, matches the glob (None: always)."""
    if glob is None:
        return lambda _: True
    pattern = path_pattern(glob)
    return lambda place: overlap(pattern, escape("/".join(place.names[len(top.names) :]) or place.names[-1]))


def read_text(context: ToolContext, place: ToolPath) -> str:
    """Return the text of a file. Raises ToolProblem if the file is not UTF-8 text or is over 4 MiB."""
    raw = read_bytes(context, place, MAX_TEXT_BYTES)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolProblem(f"is not UTF-8 text (byte {error.start})", location=display_path(context, place)) from None


def display_path(context: ToolContext, place: ToolPath) -> str:
    """Return the path relative to the task's first worktree if it is inside that worktree, else to the hive's folder."""
    tree = next(iter(context.worktrees), None)
    if tree is not None and place.base == tree.path and place.names:
        return "/".join(place.names)
    return context.hive.layout.relative(place.path)


def walk(context: ToolContext, top: ToolPath, *, include_hidden: bool = False) -> Iterator[ToolPath]:
    """Yield the readable files below a folder, in order. Skips links and `.git`, and other names with a leading dot unless
    `include_hidden`."""
    if top.path.is_file():
        yield top
        return
    queue = [top]
    while queue:
        place = queue.pop()
        try:
            folder = place.folder()
        except OSError as error:
            if place is top:
                path = display_path(context, top)
                raise ToolProblem(f"cannot be read as a folder ({error.strerror})", location=path) from None
            continue  # the folder was replaced meanwhile
        try:
            with os.scandir(folder) as listing:
                visible_entries = (
                    entry
                    for entry in listing
                    if not entry.name.startswith(".") or (include_hidden and entry.name != ".git")
                )
                seen = sorted(visible_entries, key=lambda entry: entry.name)
            yield from (place / entry.name for entry in seen if entry.is_file(follow_symlinks=False))
            folders = [place / entry.name for entry in seen if entry.is_dir(follow_symlinks=False)]
        finally:
            os.close(folder)
        mailboxes = context.hive.layout.mailboxes
        queue += [
            subfolder
            for subfolder in reversed(folders)
            if subfolder.path == mailboxes or is_readable(context, subfolder.path)
        ]


FILE_TOOLS = (read_file, write_file, edit_file, apply_patch, list_files)
