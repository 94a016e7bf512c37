"""Tools for files: reading inside the hive's roots, writing to the task's folder, knowledge/ and roots opened for it."""

from __future__ import annotations

import codecs
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from io import StringIO
from typing import Any

from pydantic import ConfigDict, Field

from hivemind.coordination.reservations import check_pattern, escape, overlap
from hivemind.masking import MASK, Masker
from hivemind.minds.pictures import MOST_BYTES, keep_picture, kind_of
from hivemind.tools.excerpt import Call
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
from hivemind.tools.session import Session
from hivemind.tools.tool import Arguments, ToolProblem, as_call, tool

MAX_FOUND = 200
MAX_TEXT_BYTES = 4_194_304
"""A file that is longer is read in parts, and neither edited nor searched."""
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
        description="relative to your worktree or the task's folder, or knowledge/…, or a root that may be written"
    )
    text: str | None = Field(None, description="the whole text")
    step: str | None = None


class EditFile(Arguments):
    path: str
    old: str = Field(min_length=1, description="the text to replace; must stand there exactly once")
    new: str
    all: bool = Field(False, description="replace it wherever it stands")


class ApplyPatch(Arguments):
    patch: str = Field(
        min_length=1, description="a unified diff: --- a/PATH, +++ b/PATH, @@ hunks with lines of context"
    )


class ListFiles(Arguments):
    path: str = Field(".", description="default: your worktree, else the whole hive")
    glob: str | None = Field(None, description="such as *.py or src/**/*.ts, from that folder")


def _lines_of(result: Mapping[str, Any]) -> str:
    if "picture" in result:
        shown = "shown below" if result["shown"] else "which you cannot be shown"
        return f"a picture ({result['picture']['kind']}, {result['bytes']:,} bytes), {shown}"
    part, lines = str(result["text"]), result["lines"]
    if "start_line" in result:
        return f"lines {result['start_line']:,} to {result['end_line']:,} of {lines:,}\n{part}"
    return part or "(an empty file)"


def _read_on(result: Mapping[str, Any]) -> Call:
    # in front of a part of a file stands a line that says which it is
    before = result.get("start_line", 1) - 1 - ("start_line" in result)
    return lambda first, last: as_call(
        "read_file", path=result["path"], start_line=before + first, end_line=before + last
    )


@tool(text=_lines_of, rest=_read_on, reads=True)
def read_file(session: Session, arguments: ReadFile) -> dict[str, Any]:
    """Read a text file of the hive, or some of its lines; or look at a picture."""
    place = readable(session, arguments.path)
    if (found := _picture(session, place)) is not None:
        return found
    first, last = arguments.start_line or 1, arguments.end_line
    part = _Part(first, last)
    with session.pulse.busy(READING_S):
        digest = part.read(session, place)
    shown: dict[str, Any] = {
        "path": named(session, place),
        "digest": digest,
        "text": "".join(part.kept),
        "lines": part.lines,
    }
    if arguments.start_line or arguments.end_line or part.cut:
        end = first - 1 + len(part.kept)
        shown |= {"start_line": first, "end_line": min(last or part.lines, part.lines) if not part.cut else end}
    return shown


def _picture(session: Session, place: ToolPath) -> dict[str, Any] | None:
    """What is told of a picture, of which a copy is kept: the conversation must stay as it is, whatever becomes of the file."""
    with open_place(session, place) as stream:
        raw = stream.read(_HEAD_BYTES)
        if kind_of(raw) is None:
            return None
        raw += stream.read(MOST_BYTES)
    layout = session.hive.layout
    part = keep_picture(layout.root, layout.agent_state(session.agent) / "pictures", raw)
    if part is None:
        raise ToolProblem(f"is a picture of more than {MOST_BYTES >> 20} MiB", location=named(session, place))
    told = {"path": named(session, place), "digest": part["sha256"], "bytes": len(raw)}
    return {**told, "picture": part, "shown": session.shows_pictures}


class _Part:
    """Some lines of a file of any size, masked as the whole of it: at most 256 KiB of them."""

    def __init__(self, first: int, last: int | None) -> None:
        self.kept: list[str] = []
        self.lines = 0
        self.cut = False
        self._first, self._last = first, last
        self._room = MAX_READ_BYTES
        self._line = ""

    def read(self, session: Session, place: ToolPath) -> str:
        """Read the file; returns the digest of its bytes. Raises ToolProblem for what is no UTF-8."""
        # what a command has printed is shown as far as it is text
        printed = "artifacts" in place.names
        decoder = codecs.getincrementaldecoder("utf-8")("replace" if printed else "strict")
        masker, digest, at = Masker(), hashlib.sha256(), 0
        with open_place(session, place) as stream:
            try:
                while data := stream.read(_PART_BYTES):
                    digest.update(data)
                    self._take(masker.feed(decoder.decode(data)))
                    at += len(data)
                self._take(masker.feed(decoder.decode(b"", True)) + masker.close())
            except UnicodeDecodeError as error:
                where = named(session, place)
                raise ToolProblem(f"is no UTF-8 text (near byte {at + error.start})", location=where) from None
        if self._line:
            self._keep(self._line)
        return digest.hexdigest()

    def _take(self, text: str) -> None:
        for piece in StringIO(text):
            # No more of a line than can be kept, and one character that says that it goes on.
            self._line += piece[: max(0, MAX_READ_BYTES + 1 - len(self._line))]
            if piece.endswith("\n"):
                self._keep(self._line)
                self._line = ""

    def _keep(self, line: str) -> None:
        self.lines += 1
        if self.cut or self.lines < self._first or (self._last is not None and self.lines > self._last):
            return
        if len(line) > self._room and self.kept:
            self.cut = True
            return
        self.kept.append(line[: self._room])
        self._room -= len(line)


@tool(text=lambda result: f"wrote {result['path']}, {result['bytes']:,} bytes")
def write_file(session: Session, arguments: WriteFile) -> dict[str, Any]:
    """Write a whole text file, into the task's folder unless the path says knowledge/… or a root open for writing."""
    target = writable(session, arguments.path)
    text = _answers(session, arguments) if arguments.text is None else arguments.text
    with target.reserved(session, "write_file"):
        if arguments.text is not None and MASK in text:
            _refuse_mask(session, target, read_text(session, target.place) if target.exists else "", text)
        target.write(session, text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    shown = named(session, target.place)
    if arguments.step is not None:
        step = session.step(arguments.step)
        inside = shown if session.trees else os.path.relpath(target.place.path, session.work.task.path)
        told = {"artifact": inside, "digest": digest}
        session.work.trail.card(step, "note", f"wrote {inside}", title=inside, meta=told)
        receipt = {"kind": "LINK", "text": session.hive.layout.relative(target.place.path), "digest": digest}
        session.hive.steps.capture(step.id, receipt, **session.shown(step))
    return {"path": shown, "digest": digest, "bytes": len(text.encode())}


def _answers(session: Session, arguments: WriteFile) -> str:
    """What a `write:` step without a text writes: the answers found so far. Raises ToolProblem for any other file."""
    todo = session.step(arguments.step).todo if arguments.step is not None else None
    if todo is None or todo.kind != "write" or todo.argument != {"path": arguments.path, "text": None}:
        raise ToolProblem("write_file: text is missing")
    return session.work.draft("")


def _edited(result: Mapping[str, Any]) -> str:
    count = result["replaced"]
    return f"edited {result['path']}{'' if count == 1 else f': {count} places'}"


@tool(text=_edited)
def edit_file(session: Session, arguments: EditFile) -> dict[str, Any]:
    """Replace one passage of a text file that you may write, or with `all` every place where it stands."""
    target = writable(session, arguments.path)
    with target.reserved(session, "edit_file"):  # from the look to the write
        text = read_text(session, target.place)
        count = text.count(arguments.old)
        if count == 0 or (count > 1 and not arguments.all):
            raise ToolProblem(
                f"the text to replace stands there {count} times, not once", location=arguments.path,
                remedy="say more of what stands around it, or all: true" if count else "read_file shows what stands there",
            )  # fmt: skip
        changed = text.replace(arguments.old, arguments.new)
        _refuse_mask(session, target, text, changed)
        target.write(session, changed)
    digest = hashlib.sha256(changed.encode()).hexdigest()
    return {"path": named(session, target.place), "digest": digest, "replaced": count}


def _changes(result: Mapping[str, Any]) -> str:
    return "\n".join(f"{one['change']} {one['path']}" for one in result["files"])


@tool(text=_changes)
def apply_patch(session: Session, arguments: ApplyPatch) -> dict[str, Any]:
    """Change, make, rename and delete text files by one unified diff, as `git diff` writes it: all of it, or nothing if one
    hunk does not fit. The lines of context must stand there exactly; line numbers may be off."""
    changes = [_Change(session, file) for file in read_patch(arguments.patch)]
    touched = [target.place.path for change in changes for target in change.targets]
    if twice := next((path for at, path in enumerate(touched) if path in touched[:at]), None):
        raise ToolProblem("is in the patch twice", location=session.hive.layout.relative(twice))
    with ExitStack() as reserved:
        for change in changes:
            for target in change.targets:
                reserved.enter_context(target.reserved(session, "apply_patch"))
        for change in changes:
            change.prepare(session)
        with ExitStack() as undo:
            for change in changes:
                change.make(session, undo)
            undo.pop_all()
    return {"files": [{"path": named(session, one.targets[-1].place), "change": one.kind} for one in changes]}


class _Change:
    """What a patch does to one file: `source` is the file as it is, `target` as it is to be."""

    def __init__(self, session: Session, file: FilePatch) -> None:
        self._file = file
        self._source = None if file.old is None else writable(session, file.old)
        stays = file.new == file.old
        self._target = self._source if stays else None if file.new is None else writable(session, file.new)
        found = (self._source, None if stays else self._target)
        self.targets: tuple[WritableFile, ...] = tuple(one for one in found if one is not None)
        self._before = self._after = ""

    @property
    def kind(self) -> str:
        if self._source is None:
            return "made"
        if self._target is None:
            return "deleted"
        return "changed" if self._target is self._source else f"moved {self._file.old} to"

    def prepare(self, session: Session) -> None:
        """Find out what is to be written, before anything is. Raises UserError that says why it cannot be."""
        if self._target is not None and self._target is not self._source and self._target.exists:
            raise ToolProblem("is there already", location=self._file.new)
        if self._source is not None:
            self._before = read_text(session, self._source.place)
        self._after = patched(self._before, self._file)
        if self._target is None and self._after:
            raise ToolProblem("has more lines than the patch deletes", location=self._file.old)
        if self._target is not None:
            _refuse_mask(session, self._target, self._before, self._after)

    def make(self, session: Session, undo: ExitStack) -> None:
        """Do it; `undo` learns how it is undone."""
        source, target, before = self._source, self._target, self._before
        if target is not None:
            target.write(session, self._after, like=source)
            if target is source:
                undo.callback(target.write, session, before)
                return
            undo.callback(target.delete, session)
        if source is not None:
            source.delete(session)
            undo.callback(source.write, session, before)


def _refuse_mask(session: Session, target: WritableFile, before: str, after: str) -> None:
    """A text that was shown with its secrets masked must not be written back in the place of what it was."""
    if after.count(MASK) > before.count(MASK):
        raise ToolProblem(
            f"has {MASK} in it, which stands in the place of a secret that you were not shown",
            location=named(session, target.place), remedy="edit the lines around it with edit_file",
        )  # fmt: skip


def _listing(result: Mapping[str, Any]) -> str:
    more = [f"… and more: name a folder or a glob ({MAX_FOUND} are listed)"] if result["cut"] else []
    return "\n".join([*result["files"], *more]) or "no files"


@tool(text=_listing, reads=True)
def list_files(session: Session, arguments: ListFiles) -> dict[str, Any]:
    """List the files below a folder of the hive, at most 200."""
    top = readable(session, arguments.path)
    fits = path_filter(top, arguments.glob)
    names: list[str] = []
    for place in walk(session, top):
        if not fits(place):
            continue
        if len(names) == MAX_FOUND:
            return {"files": names, "cut": True}
        names.append(named(session, place))
    return {"files": names, "cut": False}


def path_pattern(glob: str) -> str:
    """The pattern of paths below a folder; a glob without `/` is a name at any depth. Raises UserError for what is no glob."""
    return check_pattern(glob if "/" in glob else f"**/{glob}")


def path_filter(top: ToolPath, glob: str | None) -> Callable[[ToolPath], bool]:
    """Whether a place below a folder, or that is all there is, matches."""
    if glob is None:
        return lambda _: True
    pattern = path_pattern(glob)
    return lambda place: overlap(pattern, escape("/".join(place.names[len(top.names) :]) or place.names[-1]))


def read_text(session: Session, place: ToolPath) -> str:
    """A text file's text. Raises ToolProblem for what is none, and for one over 4 MiB."""
    raw = read_bytes(session, place, MAX_TEXT_BYTES)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolProblem(f"is no UTF-8 text (byte {error.start})", location=named(session, place)) from None


def named(session: Session, place: ToolPath) -> str:
    """The place as a tool is told of it: from the task's worktree if it lies there, else from the hive's folder."""
    tree = next(iter(session.trees), None)
    if tree is not None and place.base == tree.path and place.names:
        return "/".join(place.names)
    return session.hive.layout.relative(place.path)


def walk(session: Session, top: ToolPath, *, hidden: bool = False) -> Iterator[ToolPath]:
    """The files below a folder that may be read, in order; links are passed over, and names that begin with a dot unless
    `hidden`, git's own folder always."""
    if top.path.is_file():
        yield top
        return
    todo = [top]
    while todo:
        place = todo.pop()
        try:
            folder = place.folder()
        except OSError as error:
            if place is top:
                where = named(session, top)
                raise ToolProblem(f"is no folder that can be read ({error.strerror})", location=where) from None
            continue  # something else stands there by now
        try:
            with os.scandir(folder) as found:
                named_so = (one for one in found if not one.name.startswith(".") or (hidden and one.name != ".git"))
                seen = sorted(named_so, key=lambda one: one.name)
            yield from (place / one.name for one in seen if one.is_file(follow_symlinks=False))
            folders = [place / one.name for one in seen if one.is_dir(follow_symlinks=False)]
        finally:
            os.close(folder)
        boxes = session.hive.layout.mailboxes
        todo += [one for one in reversed(folders) if one.path == boxes or is_readable(session, one.path)]


FILE_TOOLS = (read_file, write_file, edit_file, apply_patch, list_files)
