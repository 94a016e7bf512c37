"""The proxy of a box: what is listed is reached, everything else is refused, however it is asked."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hivemind.sandbox import Hosts
from hivemind.sandbox.hosts import as_address, is_public
from hivemind.sandbox.proxy import Proxy


class Server:
    """A web server on loopback. `requests` are the heads and bodies that have reached it."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                server.requests.append((self.command, self.path, dict(self.headers), body))
                status = 302 if self.path == "/redirect" else 200
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "http://10.0.0.1/")
                self.send_header("Content-Length", "5")
                self.end_headers()
                self.wfile.write(b"hello")

            def do_GET(self) -> None:
                self.answer()

            def do_POST(self) -> None:
                self.answer()

            def log_message(self, *arguments: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.port = self.http.server_address[1]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture
def proxied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Proxy]]:
    """Start a proxy for hosts; `names` are what the resolver knows, each with its addresses."""
    made: list[Proxy] = []

    def start(*hosts: str, names: dict[str, list[str]] | None = None) -> Proxy:
        if names is not None:
            known, resolve = names, socket.getaddrinfo

            def getaddrinfo(host: str, port: int, *arguments: object, **more: object) -> object:
                addresses = known.get(host, [host])
                return [answer for address in addresses for answer in resolve(address, port, *arguments, **more)]  # type: ignore[arg-type]

            monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        made.append(Proxy(str(tmp_path / "p"), Hosts.parse(hosts)))
        return made[-1]

    yield start
    for proxy in made:
        proxy.close()


def ask(proxy: Proxy, text: str | bytes) -> bytes:
    """Send bytes to the proxy and return its whole answer."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(proxy.path)
        client.sendall(text.encode() if isinstance(text, str) else text)
        answer = b""
        while chunk := client.recv(65536):
            answer += chunk
        return answer


def test_a_listed_host_is_reached_by_a_tunnel_and_plainly(proxied, server: Server):
    proxy = proxied(f"127.0.0.1:{server.port}")
    place = f"127.0.0.1:{server.port}"
    tunnel = (
        f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\nGET /in HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    assert ask(proxy, tunnel).endswith(b"hello")
    assert ask(proxy, f"GET http://{place}/plain?x=1 HTTP/1.1\r\nHost: {place}\r\nAccept: */*\r\n\r\n").endswith(
        b"hello"
    )
    assert ask(proxy, f"POST http://{place} HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").endswith(b"hello")
    assert [(method, path, body) for method, path, _, body in server.requests] == [
        ("GET", "/in", b""), ("GET", "/plain?x=1", b""), ("POST", "/", b"abc"),
    ]  # fmt: skip
    assert proxy.refusals() == []


@pytest.mark.parametrize(
    "target",
    [
        "127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", "[::ffff:127.0.0.1]:{port}", "2130706433:{port}",
        "0x7f000001:{port}", "127.1:{port}", "0177.0.0.1:{port}", "0.0.0.0:{port}", "[::]:{port}", "10.0.0.1:443",
        "169.254.169.254:80", "[fe80::1]:443", "[64:ff9b::7f00:1]:443", "listed.example:22", "listed.example:25",
        "listed.example.evil.example:443", "evil-listed.example:443", "listed.example.:444",
    ],
)  # fmt: skip
def test_what_is_not_listed_is_refused_and_is_reported_once(proxied, server: Server, target: str):
    proxy = proxied("listed.example")
    place = target.format(port=server.port)
    for _ in range(2):
        assert ask(proxy, f"CONNECT {place} HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 403 ")
        assert ask(proxy, f"GET http://{place}/ HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 403 ")
    assert server.requests == []
    [reason] = proxy.refusals()
    assert "is not under network: in the agent's file" in reason
    assert proxy.refusals() == []


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.169.254", "fd00::1", "100.64.0.1"],
)
def test_a_listed_name_that_resolves_to_a_private_address_is_refused(proxied, server: Server, address: str):
    proxy = proxied(f"listed.example:{server.port}", names={"listed.example": [address]})
    answer = ask(proxy, f"CONNECT listed.example:{server.port} HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"on this machine or a local network" in answer
    assert server.requests == []
    assert address in proxy.refusals()[0]


def test_a_private_address_that_is_listed_itself_is_reached_by_a_listed_name(proxied, server: Server):
    names = {"listed.example": ["10.255.255.1", "127.0.0.1"]}
    proxy = proxied(f"listed.example:{server.port}", f"127.0.0.1:{server.port}", names=names)
    request = f"GET http://listed.example:{server.port}/ HTTP/1.1\r\nHost: other.example\r\n\r\n"
    assert ask(proxy, request).endswith(b"hello")
    assert server.requests[0][2]["Host"] == f"listed.example:{server.port}"


def test_a_name_is_resolved_once_and_the_checked_address_is_used(proxied, server: Server, monkeypatch):
    answers = [[(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.215.14", server.port))]]
    asked, connected = [], []

    def getaddrinfo(host: object, *arguments: object, **more: object) -> object:
        asked.append(host)
        if host == "rebound.example":
            return answers.pop()  # a second question would fail
        connected.append(host)
        raise OSError("no network in tests")

    proxy = proxied(f"rebound.example:{server.port}")
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert ask(proxy, f"CONNECT rebound.example:{server.port} HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 502 ")
    assert asked.count("rebound.example") == 1
    assert server.requests == []


def test_a_redirect_is_the_programs_to_follow_and_is_refused_then(proxied, server: Server):
    proxy = proxied(f"127.0.0.1:{server.port}")
    assert b"Location: http://10.0.0.1/" in ask(proxy, f"GET http://127.0.0.1:{server.port}/redirect HTTP/1.1\r\n\r\n")
    assert ask(proxy, "GET http://10.0.0.1/ HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    "head",
    [
        "GET / HTTP/1.1\r\nHost: {place}\r\n\r\n",
        "GET https://{place}/ HTTP/1.1\r\n\r\n",
        "GET http://user@{place}/ HTTP/1.1\r\n\r\n",
        "GET http://{place}@10.0.0.1/ HTTP/1.1\r\n\r\n",
        "GET http://{place}/ HTTP/1.1 x\r\n\r\n",
        "GET http://{place}/\nX: y HTTP/1.1\r\n\r\n",
        "GET http://{place}/ HTTP/1.1\r\nA: b\nHost: evil\r\n\r\n",
        "GET http://{place}/ HTTP/1.1\r\nA: b\rHost: evil\r\n\r\n",
        "GET http://{place}/ HTTP/1.1\r\nA: b\r\n folded: c\r\n\r\n",
        "GET http://{place}/ HTTP/1.1\r\nHost : evil\r\n\r\n",
        "GET http://{place}/ HTTP/1.1\r\nA\0: evil\r\n\r\n",
        "POST http://{place}/ HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        "POST http://{place}/ HTTP/1.1\r\nContent-Length: +3\r\n\r\nabc",
        "POST http://{place}/ HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST http://{place}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "CONNECT {place}/x HTTP/1.1\r\n\r\n",
        "CONNECT 127.0.0.1 HTTP/1.1\r\n\r\n",
        "CONNECT http://{place} HTTP/1.1\r\n\r\n",
        "CONNECT {place}:1 HTTP/1.1\r\n\r\n",
        "CONNECT *.example:443 HTTP/1.1\r\n\r\n",
        "CONNECT example:0 HTTP/1.1\r\n\r\n",
        "CONNECT example:99999 HTTP/1.1\r\n\r\n",
        "CONNECT ex\u0430mple:443 HTTP/1.1\r\n\r\n",
        "CONNECT example:443 HTTP/2.0\r\n\r\n",
        "\x16\x03\x01\r\n\r\n",
    ],
)
def test_a_request_that_could_be_read_in_two_ways_is_refused(proxied, server: Server, head: str):
    proxy = proxied(f"127.0.0.1:{server.port}", "*.example")
    assert ask(proxy, head.format(place=f"127.0.0.1:{server.port}")).startswith(b"HTTP/1.1 400 ")
    assert server.requests == []
    assert ask(proxy, f"GET http://127.0.0.1:{server.port}/ HTTP/1.1\r\n\r\n").endswith(b"hello")


def test_only_the_first_request_of_a_connection_is_passed_on_and_only_its_own_headers(proxied, server: Server):
    place = f"127.0.0.1:{server.port}"
    proxy = proxied(place)
    headers = "Host: evil\r\nProxy-Authorization: Basic c2VjcmV0\r\nConnection: keep-alive, X\r\nUpgrade: h2c\r\nX-Mine: 1\r\n"
    second = f"GET http://{place}/second HTTP/1.1\r\n\r\nGET /third HTTP/1.1\r\nHost: {place}\r\n\r\n"
    ask(proxy, f"GET http://{place}/first HTTP/1.1\r\n{headers}\r\n{second}")
    [(_, path, sent, _)] = server.requests
    assert path == "/first"
    assert sent == {"Host": place, "x-mine": "1", "Connection": "close"}


def test_what_follows_a_plain_request_never_leaves_the_proxy(proxied):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        proxy, received = proxied(place), b""

        def serve() -> None:
            nonlocal received
            connection, _ = listener.accept()
            with connection:
                while b"abc" not in received:
                    received += connection.recv(10_000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                connection.shutdown(socket.SHUT_WR)
                while more := connection.recv(10_000):
                    received += more

        thread = threading.Thread(target=serve)
        thread.start()
        ask(proxy, f"POST http://{place}/ HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /smuggled HTTP/1.1\r\n\r\n")
        thread.join()
    assert received.endswith(b"\r\n\r\nabc")


def test_a_flood_of_connections_is_served_in_turn(proxied, server: Server):
    proxy = proxied(f"127.0.0.1:{server.port}")
    silent = []
    for _ in range(100):
        client = socket.socket(socket.AF_UNIX)
        client.connect(proxy.path)
        silent.append(client)
    answers: list[bytes] = []
    request = f"GET http://127.0.0.1:{server.port}/ HTTP/1.1\r\n\r\n"
    threads = [threading.Thread(target=lambda: answers.append(ask(proxy, request))) for _ in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 60
    assert all(answer.endswith(b"hello") for answer in answers)
    for client in silent:
        client.close()
    for number in range(300):
        ask(proxy, f"CONNECT h{number}.example:443 HTTP/1.1\r\n\r\n")
    assert len(proxy.refusals()) == 100


def test_a_head_without_an_end_is_cut_off(proxied):
    proxy = proxied()
    assert ask(proxy, b"GET http://x/ HTTP/1.1\r\nX: " + b"y" * 200_000) == b""


def test_the_end_of_a_proxy_ends_its_connections_and_a_stale_socket_does_not_stop_the_next(proxied, server: Server):
    proxy = proxied(f"127.0.0.1:{server.port}")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(proxy.path)
        client.sendall(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n\r\n".encode())
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")
        proxy.close()
        client.settimeout(10)
        assert client.recv(100) == b""
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(proxy.path)
    assert ask(proxied(), "CONNECT x:1 HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 403 ")
    proxy.close = lambda: None  # type: ignore[method-assign]


def test_a_proxy_that_ends_as_clients_come_loses_no_socket(tmp_path: Path):
    for number in range(120):
        proxy = Proxy(str(tmp_path / "p"), Hosts.parse(()))
        clients = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for client in clients:
            client.connect(proxy.path)
            threading.Event().wait(0.0002 * (number % 7))
        proxy.close()
        for client in clients:
            client.close()
    gc.collect()  # a socket that is lost ends with a warning, which is an error here


def test_hosts_are_names_with_ports_and_wildcards_stand_for_names_below():
    hosts = Hosts.parse(["Host.Example", "*.example.org:8443", "localhost:11434", "[::1]:80", "10.0.0.1"])
    assert hosts.allow("host.example", 443)
    assert hosts.allow("host.example", 80)
    assert not hosts.allow("host.example", 22)
    assert hosts.allow("a.b.example.org", 8443)
    assert not hosts.allow("example.org", 8443)
    assert not hosts.allow("badexample.org", 8443)
    assert hosts.allow("127.0.0.1", 11434)
    assert hosts.loopback == [("127.0.0.1", 11434), ("::1", 80)]


@pytest.mark.parametrize(
    "entry", ["", "*", "*.", "https://example.org", "example.org/simple", "a b", "x:0", "x:99999", "a..b", "10.0.0.0/8"]
)
def test_an_entry_that_is_no_host_is_refused_in_words(entry: str):
    with pytest.raises(ValueError, match=r"is not a host: write it like example"):
        Hosts.parse([entry])


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("8.8.8.8", True), ("2606:4700::1", True), ("127.0.0.1", False), ("10.0.0.1", False), ("172.16.0.1", False),
        ("192.168.1.1", False), ("169.254.169.254", False), ("100.64.0.1", False), ("0.0.0.0", False), ("224.0.0.1", False),
        ("255.255.255.255", False), ("::1", False), ("::", False), ("fe80::1", False), ("fc00::1", False), ("fec0::1", False),
        ("::ffff:127.0.0.1", False), ("::ffff:8.8.8.8", True), ("2002:7f00:1::", False), ("64:ff9b::a00:1", False),
        ("64:ff9b::808:808", True), ("ff02::1", False),
    ],
)  # fmt: skip
def test_addresses_of_this_machine_and_of_local_networks_are_not_public(text: str, public: bool):
    address = as_address(text)
    assert address is not None
    assert is_public(address) is public
