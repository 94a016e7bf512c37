"""Recording what a workload asks of the disk: strace's log, read into a `Disk`.

Every call is taken in the order in which it ended. strace stops a process at the end of each of its calls: what
one process does because of another's call (a lock that was given back, a file that appeared) comes after it in the log.
The recording is checked: the tree that it adds up to must be, byte for byte, the folder that the workload has left.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.faults.powerloss.disk import Crash, Disk

__all__ = ["record"]

_CALLS = (
    "open,openat,openat2,creat,write,pwrite64,writev,pwritev,pwritev2,lseek,truncate,ftruncate,fallocate,sendfile,"
    "copy_file_range,rename,renameat,renameat2,link,linkat,unlink,unlinkat,rmdir,mkdir,mkdirat,mknod,mknodat,symlink,"
    "symlinkat,fsync,fdatasync,sync,syncfs,bind,chdir,fchdir,clone,clone3,fork,vfork"
)
_LINE = re.compile(r"(\d+) +(\d+)\.(\d+) (.*)")
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+|\?)(<[^>]*>)?(.*)")
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_FD = re.compile(r"(AT_FDCWD|\d+)<((?:\\x[0-9a-f]{2})*)>(\(deleted\))?")
_UNSHARED = ("-shm", ".sock")  # SQLite's shared memory (mapped, rebuilt after a crash) and sockets are empty


def record(
    command: Sequence[str],
    hive: Path,
    replies: Path,
    log: Path,
    environment: Mapping[str, str],
    *,
    outside: str | None = None,
) -> Disk:
    """Run a workload that works in the folder `hive` and writes its answers to the file `replies`.

    With `outside`, a folder in `hive`, what is written there, and what the workload's own first process writes anywhere, is on
    the disk at once: people see to it themselves, and another machine keeps its own files.

    Raises CalledProcessError if the workload fails, AssertionError if the recording does not match the folder.
    """
    replies.write_bytes(b"")
    traced = [
        "strace", "-f", "--seccomp-bpf", "-ttt", "-y", "-xx", "-s", "16777216", "-e", f"trace={_CALLS}", "-o", os.fspath(log)
    ]  # fmt: skip
    done = subprocess.run(
        [*traced, *command], env=dict(environment), cwd=replies.parent, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise AssertionError(f"the workload ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    reading = _Reading(os.fspath(hive), os.fspath(replies), outside)
    with open(log, encoding="ascii") as lines:
        for line in lines:
            reading.take(line)
    _check(reading.disk, hive)
    for path in hive.rglob("*"):
        node = reading.disk.find(path.relative_to(hive).as_posix())
        if node is not None and path.is_file() and not path.is_symlink():
            reading.disk.modified[node] = path.stat().st_mtime_ns
    return reading.disk


class _Reading:
    """Takes the log line by line."""

    def __init__(self, hive: str, replies: str, outside: str | None) -> None:
        self.disk = Disk()
        self._outside, self._first = outside, 0
        self._hive, self._said = hive, replies
        self._began: dict[int, str] = {}
        self._folders: dict[int, str] = {}  # each process' working folder
        self._offsets: dict[tuple[int, int], int] = {}
        self._appending: dict[tuple[int, int], bool] = {}
        self._copied: dict[tuple[int, str, str], int] = {}

    def take(self, line: str) -> None:
        match = _LINE.match(line)
        if match is None:
            return
        pid, text = int(match[1]), match[4]
        self._first = self._first or pid
        if pid not in self._folders:
            parent = next(
                (child for child, call in self._began.items() if call.startswith(("clone", "vfork", "fork"))), None
            )
            self._folders[pid] = self._folders.get(parent or 0, os.path.dirname(self._said))
        if text.endswith("<unfinished ...>"):
            self._began[pid] = text.removesuffix("<unfinished ...>")
            return
        if (resumed := _RESUMED.match(text)) is not None:
            text = self._began.pop(pid, "") + resumed[1]
        call = _CALL.match(text)
        if call is None:
            return
        name, arguments, status = call[1], call[2], call[3]
        for descriptor in _FD.finditer(arguments):
            if descriptor[1] == "AT_FDCWD":
                self._folders[pid] = _text(descriptor[2])
        if name.startswith(("clone", "fork", "vfork")) and status.isdigit():
            self._folders.setdefault(int(status), self._folders[pid])
        if status.startswith("-") or status == "?":
            return
        self._call(pid, name, arguments, int(status), _text(call[4].strip("<>")) if call[4] else "")
        done = range(len(self.disk.times), len(self.disk.operations))
        self.disk.times += [int(match[2] + match[3].ljust(9, "0"))] * len(done)
        if self._outside is not None and (pid == self._first or self._is_outside(pid, arguments)):
            self.disk.durable.update(done)

    def _is_outside(self, pid: int, arguments: str) -> bool:
        """Check that a call is about the folder of another machine."""
        paths = [_text(match[2]) for match in _FD.finditer(arguments) if match[1] != "AT_FDCWD"] + self._paths(
            pid, arguments
        )[:2]
        return any((self._below(path) or "").startswith(f"{self._outside}/") for path in paths)

    # paths

    def _below(self, path: str) -> str | None:
        """Return the path below the hive; None for a path elsewhere."""
        path = os.path.normpath(path)
        if path == self._hive:
            return ""
        return path[len(self._hive) + 1 :] if path.startswith(f"{self._hive}/") else None

    def _paths(self, pid: int, arguments: str) -> list[str]:
        """The paths that a call names, absolute: each text, from the folder right before it."""
        paths: list[str] = []
        for text in _TEXT.finditer(arguments):
            before = [
                fd for fd in _FD.finditer(arguments, 0, text.start()) if arguments[fd.end() : text.start()] == ", "
            ]
            base = _text(before[-1][2]) if before else self._folders[pid]
            paths.append(os.path.join(base, _text(text[1])))
        return paths

    def _file(self, arguments: str) -> tuple[int, str | None, int | None]:
        """The descriptor that a call begins with: its number, its path below the hive, and its node if the file has a name."""
        match = _FD.match(arguments)
        if match is None or match[1] == "AT_FDCWD":
            return -1, None, None
        path = self._below(_text(match[2]))
        node = None if path is None or match[3] else self.disk.find(path)
        return int(match[1]), path, node

    # calls

    def _call(self, pid: int, name: str, arguments: str, status: int, real_path: str) -> None:
        match name:
            case "open" | "openat" | "openat2" | "creat":
                self._open(pid, name, arguments, status, real_path)
            case "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2":
                self._write(pid, name, arguments, status)
            case "lseek":
                number, path, _ = self._file(arguments)
                if path is not None:
                    self._offsets[pid, number] = status
            case "sendfile" | "copy_file_range":
                self._copy(pid, name, arguments, status)
            case "ftruncate" | "truncate" | "fallocate":
                self._resize(pid, name, arguments)
            case "fsync" | "fdatasync":
                _, path, node = self._file(arguments)
                if path is not None and node is not None:
                    self.disk.sync(node)
            case "sync" | "syncfs":
                self.disk.sync(None)
            case "chdir":
                self._folders[pid] = self._paths(pid, arguments)[0]
            case "fchdir":
                match = _FD.match(arguments)
                assert match is not None
                self._folders[pid] = _text(match[2])
            case "bind":
                return
            case _:
                self._names(pid, name, arguments)

    def _names(self, pid: int, name: str, arguments: str) -> None:
        paths = [self._below(path) for path in self._paths(pid, arguments)]
        if name.startswith("symlink"):
            if paths[1] is not None:
                target = _text(next(iter(_TEXT.finditer(arguments)))[1])
                self.disk.add(paths[1], "link", 0o777, "symlink", target)
            return
        if not paths or all(path is None for path in paths):
            return
        path = paths[0]
        assert path is not None, f"{name}({arguments}) comes from outside the hive"
        assert None not in paths, f"{name}({arguments}) leads out of the hive"
        if name.startswith("mkdir"):
            if path:
                self.disk.add(path, "folder", int(arguments.rsplit(",", 1)[1], 8) & ~0o022, "mkdir")
        elif name.startswith(("unlink", "rmdir")):
            self.disk.remove(path)
        elif name.startswith("rename"):
            self.disk.rename(path, str(paths[1]), "RENAME_EXCHANGE" in arguments)
        elif name.startswith("link"):
            self.disk.link(path, str(paths[1]))
        else:
            raise AssertionError(f"{name}({arguments}) is not known here")

    def _open(self, pid: int, name: str, arguments: str, status: int, real_path: str) -> None:
        flags = "O_CREAT|O_TRUNC|O_WRONLY" if name == "creat" else arguments.split(", ")[2 - (name == "open")]
        target = self._paths(pid, arguments)[0]
        path = self._below(real_path if target.startswith("/proc/self/fd/") else target)
        self._offsets[pid, status] = 0
        self._appending[pid, status] = "O_APPEND" in flags
        if path is None or ("O_CREAT" not in flags and "O_TRUNC" not in flags):
            return
        assert "O_TMPFILE" not in flags
        node = self.disk.find(path)
        if node is None:
            mode = int(arguments.rsplit(", ", 1)[1].rstrip("}) "), 8) if "O_CREAT" in flags else 0o644
            self.disk.add(path, "file", mode & ~0o022, "create")
        elif "O_TRUNC" in flags and self.disk.sizes.get(node):
            self.disk.resize(node, 0)

    def _write(self, pid: int, name: str, arguments: str, status: int) -> None:
        number, path, node = self._file(arguments)
        match = _FD.match(arguments)
        if match is not None and _text(match[2]) == self._said:
            self.disk.say(b"".join(_bytes(text[1]) for text in _TEXT.finditer(arguments)).decode().rstrip("\n"))
        if path is None or node is None or node not in self.disk.sizes:
            return
        data = b"".join(_bytes(text[1]) for text in _TEXT.finditer(arguments))[:status]
        assert len(data) == status, f"{name}: {len(data)} of {status} bytes were recorded"
        if name.startswith("pwrite"):
            tail = arguments.split(", ")
            offset = int(tail[-2] if name == "pwritev2" else tail[-1])
        elif self._appending.get((pid, number), True):
            offset = self.disk.sizes[node]
        else:
            offset = self._offsets[pid, number]
            self._offsets[pid, number] = offset + status
        self.disk.write(node, offset, data)

    def _copy(self, pid: int, name: str, arguments: str, status: int) -> None:
        places = [_text(match[2]) for match in _FD.finditer(arguments)]
        source, target = (places[1], places[0]) if name == "sendfile" else places
        below = self._below(target)
        node = None if below is None else self.disk.find(below)
        if node is None:
            return
        offset = self._copied.get((pid, source, target), 0)
        self._copied[pid, source, target] = offset + status
        self.disk.write(node, self.disk.sizes[node], self._content(source)[offset : offset + status])

    def _content(self, path: str) -> bytes:
        below = self._below(path)
        if below is None:
            return Path(path).read_bytes()
        node = self.disk.find(below)
        return bytes(self.disk.content(Crash(len(self.disk.operations)))[1].get(node or 0, b""))

    def _resize(self, pid: int, name: str, arguments: str) -> None:
        if name == "truncate":
            path = self._below(self._paths(pid, arguments)[0])
            node = None if path is None else self.disk.find(path)
        else:
            _, path, node = self._file(arguments)
        if node is None or node not in self.disk.sizes:
            return
        if name == "fallocate":
            mode, offset, length = arguments.split(", ")[1:]
            assert mode == "0", arguments
            if int(offset) + int(length) > self.disk.sizes[node]:
                self.disk.resize(node, int(offset) + int(length))
            return
        self.disk.resize(node, int(arguments.rsplit(", ", 1)[1]))


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _text(text: str) -> str:
    return os.fsdecode(_bytes(text))


def _check(disk: Disk, hive: Path) -> None:
    """Raise AssertionError unless the recorded tree equals the folder."""
    tree, files = disk.content(Crash(len(disk.operations)))
    recorded: dict[str, bytes | None] = {}

    def walk(node: int, prefix: str) -> None:
        for name, below in tree.get(node, {}).items():
            path = f"{prefix}{name}"
            recorded[path] = None if disk.nodes[below].kind != "file" else bytes(files.get(below, b""))
            walk(below, f"{path}/")

    walk(0, "")
    actual: dict[str, bytes | None] = {}
    for path in hive.rglob("*"):
        name = path.relative_to(hive).as_posix()
        if path.is_file() and not path.is_symlink():
            actual[name] = path.read_bytes()
        elif path.is_dir() or path.is_symlink():
            actual[name] = None
    for name in sorted({*recorded, *actual}):
        if name.endswith(_UNSHARED):
            continue
        assert name in actual, f"{name} was recorded and does not exist"
        assert name in recorded, f"{name} exists and was not recorded"
        assert recorded[name] == actual[name], (
            f"{name} was recorded otherwise: {recorded[name]!r:.300} {actual[name]!r:.300}"
        )
