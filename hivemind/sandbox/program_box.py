"""The box (sandbox) of an agent's program: what it sees of the machine, and its way to the network."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hivemind.frozen import frozen
from hivemind.pattern import pattern
from hivemind.sandbox.bubblewrap import SYSTEM_FOLDERS, has_sandbox, sandbox_command
from hivemind.sandbox.hosts import Hosts

if TYPE_CHECKING:
    from hivemind.sandbox.proxy import Proxy

_PROXY_PORT = 3128
_GATEWAY = str(Path(__file__).with_name("gateway.py"))
_SCRIPT_BYTES, _MAX_PROGRAMS = 4096, 8
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS")
_LOOPBACK_URL = pattern(
    r"\bhttp(s?)://(localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::([0-9]{1,5}))?(?=[/\"'\s?#]|$)", re.IGNORECASE
)
_WRAPPED = pattern(r'^exec "?(/[^\s"]+)', re.MULTILINE)
_NAME_FILES = ("/etc/hosts", "/etc/nsswitch.conf")


@frozen
class BoxSettings:
    """`sandbox:` and `network:` of an agent's file."""

    sandbox: Literal["auto", "bwrap", "none"] = "auto"
    network: Literal["open"] | tuple[str, ...] = ()

    @property
    def is_boxed(self) -> bool:
        """True if programs with these settings run in a box on this machine.

        With `bwrap` they always do, since without bubblewrap they do not start.
        """
        return self.sandbox == "bwrap" or (self.sandbox == "auto" and has_sandbox())


def loopback_urls(texts: Iterable[str]) -> list[str]:
    """Return the loopback addresses in the URLs of the texts, as `host:port`, sorted."""
    hosts = set[str]()
    for match in (match for text in texts for match in _LOOPBACK_URL.finditer(text)):
        port = int(match[3] or (443 if match[1] else 80))
        if 0 < port < 1 << 16:
            hosts.add(f"{match[2]}:{port}")
    return sorted(hosts)


class ProgramBox:
    """The box of one run of a program, with its proxy.

    `command` and `environment` start the program in its box; the command must be started in the work folder. `close` ends the
    proxy.
    """

    def __init__(
        self,
        program: Sequence[str],
        environment: Mapping[str, str],
        *,
        folder: Path,
        home: Path,
        folders: Mapping[Path, bool | None],
        files: Iterable[str],
        login: Mapping[Path, Path],
        network: Literal["open"] | Hosts,
        socket: str,
        commands: Iterable[Sequence[str]] = (),
        is_read_only: bool = False,
    ) -> None:
        """Start the proxy on `socket`, unless the `network` is open.

        In the box the program sees the `folders` (True: writable), the `files` (read-only) and what its further `commands`
        need. It also sees the `login` files, each at the path in `home` that is its key. `is_read_only` protects the work
        folder.

        Raises OSError, UserError if bubblewrap does not run.
        """
        self.environment, commands = dict(environment), [program[:1], *commands]
        visible, links = _program_files([name for name, *_ in filter(None, commands)], environment.get("PATH"))
        certificates = [path for name in _CERTIFICATES if (path := environment.get(name))]
        for path in (_GATEWAY, *files, *chain(*commands), *certificates):
            if os.path.isabs(path) and (os.path.isfile(path) or path in certificates):
                links[path] = Path(os.path.realpath(path))
        visible |= {path for path in links.values() if path.exists()}
        covered = (*SYSTEM_FOLDERS, sys.prefix, sys.base_prefix)
        roots = {**{path: False for path in visible if not _is_below(path, covered)}, **folders}
        mounts: list[str] = []
        for link, real_path in links.items():
            if os.path.isabs(link) and link != os.fspath(real_path) and not _is_below(link, (*roots, *covered)):
                mounts += ["--symlink", os.fspath(real_path), link]
        for place, real_path in login.items():
            mounts += ["--ro-bind", os.fspath(real_path), os.fspath(place)]
        for name in _NAME_FILES:
            mounts += ["--ro-bind-try", name, name]
        if is_read_only:
            mounts += ["--ro-bind", ".", os.path.realpath(folder)]
        self.proxy: Proxy | None = None
        gateway_arguments = ["", "", ""]
        if network != "open":
            from hivemind.sandbox.proxy import Proxy

            self.proxy = Proxy(socket, network)
            taken_ports = {port for _, port in network.loopback}
            proxy_port = next(port for port in range(_PROXY_PORT, 1 << 16) if port not in taken_ports)
            listeners = ",".join(f"{address} {port}" for address, port in network.loopback)
            gateway_arguments = [socket, str(proxy_port), listeners]
            self.environment |= _proxy_variables(f"http://127.0.0.1:{proxy_port}")
            mounts += ["--ro-bind", socket, socket]
        try:
            argv = [sys.executable, "-I", "-S", _GATEWAY, *gateway_arguments, *program]
            self.command = sandbox_command(
                argv, folder, None, roots, home=home, network=network == "open", mounts=mounts
            )
        except BaseException:
            self.close()
            raise

    def refusals(self) -> list[str]:
        """Return the hosts that the proxy has refused to the program since the last call."""
        return [] if self.proxy is None else self.proxy.refusals()

    def close(self) -> None:
        """End the proxy."""
        if self.proxy is not None:
            self.proxy.close()


def _proxy_variables(url: str) -> dict[str, str]:
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    variables = {spelling: url for name in names for spelling in (name, name.lower())}
    local = "localhost,127.0.0.1,::1"
    return {**variables, "NO_PROXY": local, "no_proxy": local, "NODE_USE_ENV_PROXY": "1"}


def _program_files(names: Iterable[str], search_path: str | None) -> tuple[set[Path], dict[str, Path]]:
    """Return the folders and files that programs need, including their interpreters and the programs that their wrappers start.

    The result is (folders, path of each program -> the file behind it).
    """
    import shutil

    folders, links = set[Path](), dict[str, Path]()
    programs = [(name, False) for name in names]
    for name, is_interpreter in programs:
        path = shutil.which(name, path=search_path) or name
        real_path = links[path] = Path(os.path.realpath(path))
        if "node_modules" in real_path.parts:
            folders.add(Path(*real_path.parts[: real_path.parts.index("node_modules") + 1]))
        folders |= {*(_prefixes(Path(path), real_path) if is_interpreter else ())}
        programs += _started_programs(real_path) if len(programs) < _MAX_PROGRAMS else ()
    return folders, links


def _prefixes(path: Path, real_path: Path) -> Iterator[Path]:
    """Yield the folders in which an interpreter is installed: its virtual environment, and the folder above its real `bin`.

    If that is the person's home, a parent of it or ~/.local, yield only its `lib`.
    """
    if (path.parent.parent / "pyvenv.cfg").is_file():
        yield path.parent.parent
    if real_path.parent.name == "bin":
        prefix, home = real_path.parent.parent, Path(os.path.realpath(os.path.expanduser("~")))
        is_personal = home.is_relative_to(prefix) or prefix == home / ".local"
        yield from (folder for folder in [prefix / "lib" if is_personal else prefix] if folder.is_dir())


def _started_programs(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield (interpreter, True) from a script's first line, and (program, False) for each program that the script executes."""
    text = ""
    with suppress(OSError), open(path, "rb") as file:
        text = os.fsdecode(file.read(_SCRIPT_BYTES))
    words = text[2:].partition("\n")[0].split() if text.startswith("#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    yield from ((word, True) for word in words[:1])
    yield from ((target, False) for target in _WRAPPED.findall(text) if words)


def _is_below(path: str | Path, folders: Iterable[str | Path]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)
