"""The first process in a program's box (sandbox): it passes connections from the box's own loopback to the proxy outside.

It is run by its path, as `python -I -S gateway.py SOCKET PORT LISTENERS PROGRAM...`, and imports only the standard library.
SOCKET is the proxy's Unix socket ("": there is no proxy). The program finds the proxy at PORT of its loopback. LISTENERS,
`ADDRESS PORT` separated by commas, are ports on the machine's loopback that the program may reach, too. A child process serves
all of these ports; the first process becomes the program.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading

_CHUNK_BYTES = 1 << 16


def main(path: str, proxy_port: str, listeners: str, *program: str) -> None:
    """Start the server if there is a proxy, then replace this process by the program."""
    if path:
        _start_server(path, proxy_port, listeners)
    os.execvp(program[0], program)  # noqa: S606 - the program that the person named


def _start_server(path: str, proxy_port: str, listeners: str) -> None:
    """Listen on the ports, and pass their connections on in a child process."""
    endpoints = [pair.rsplit(" ", 1) for pair in listeners.split(",") if pair]
    servers = {_listen("127.0.0.1", int(proxy_port)): b""}
    for address, port in endpoints:
        target = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        preface = f"CONNECT {target} HTTP/1.1\r\n\r\n".encode()
        try:
            servers[_listen(address, int(port))] = preface
        except OSError as error:
            sys.stderr.write(f"hivemind: {target} cannot be reached in the box ({error.strerror})\n")
        with contextlib.suppress(OSError):  # programs try both for `localhost`
            servers[_listen("::1", int(port))] = preface
    if os.fork():
        for server in servers:
            server.close()
        return
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    threads = [threading.Thread(target=_serve, args=(server, path, preface)) for server, preface in servers.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)


def _listen(address: str, port: int) -> socket.socket:
    server = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    server.listen(128)
    return server


def _serve(server: socket.socket, path: str, preface: bytes) -> None:
    while True:
        client, _ = server.accept()
        threading.Thread(target=_pass_on, args=(client, path, preface), daemon=True).start()


def _pass_on(client: socket.socket, path: str, preface: bytes) -> None:
    with client, socket.socket(socket.AF_UNIX) as proxy, contextlib.suppress(OSError):
        proxy.connect(path)
        if preface:
            proxy.sendall(preface)
            answer = b""
            while not answer.endswith(b"\r\n\r\n"):
                byte = proxy.recv(1)
                if not byte:
                    return
                answer += byte
            if b" 200 " not in answer.split(b"\r\n")[0]:
                return
        back = threading.Thread(target=_copy, args=(proxy, client), daemon=True)
        back.start()
        _copy(client, proxy)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main(*sys.argv[1:])
