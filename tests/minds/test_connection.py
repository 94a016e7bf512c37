"""What leaves the machine with a request, and how much of an answer is read."""

from __future__ import annotations

import gzip
import json

import pytest

from hivemind.minds import MindUnavailable, open_mind
from hivemind.minds.language.connection import MAX_ANSWER_BYTES
from tests.minds.asking import TOOL, Clock, turn

pytestmark = pytest.mark.usefixtures("language_models")

AMBIENT = {
    "OPENAI_ORG_ID": "org-ambient",
    "OPENAI_PROJECT_ID": "proj-ambient",
    "OPENAI_ADMIN_KEY": "admin-ambient",
    "OPENAI_CUSTOM_HEADERS": "X-Foo: openai-ambient",
    "ANTHROPIC_AUTH_TOKEN": "token-ambient",
    "ANTHROPIC_CUSTOM_HEADERS": "X-Foo: anthropic-ambient\nAuthorization: Bearer other-ambient\nX-Api-Key: another-ambient",
    "GOOGLE_CLOUD_PROJECT": "google-ambient",
    "GOOGLE_GENAI_USE_VERTEXAI": "true",
    "OLLAMA_API_KEY": "",
}


@pytest.fixture
def ask(server):
    """Ask a provider once, with a patience that does not wait."""

    def think(provider: str = "openai-compatible", url: str | None = None, **more):
        mind = open_mind(
            {provider: {"model": "played", "url": url or server.url, **more}}, patience=Clock().patience(max_tries=1)
        )
        try:
            return mind.think(turn(), [TOOL])
        finally:
            mind.close()

    return think


@pytest.mark.parametrize("provider", ["openai", "openai-compatible", "ollama", "anthropic", "google"])
def test_nothing_that_the_environment_says_goes_along_but_the_key(server, ask, monkeypatch, provider):
    for name, value in AMBIENT.items():
        monkeypatch.setenv(name, value)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, f"the key in {name}")
    ask(provider, server.root if provider in ("anthropic", "google") else server.url)
    (told,) = server.headers
    assert "ambient" not in json.dumps(told)
    assert "ambient" not in json.dumps(server.requests)
    assert set(told) <= {
        "host", "connection", "accept", "accept-encoding", "content-type", "content-length", "user-agent",
        "authorization", "x-api-key", "x-goog-api-key", "anthropic-version",
    }  # fmt: skip
    mine = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "google": "GOOGLE_API_KEY"}.get(provider)
    assert server.keys == {f"the key in {mine}" if mine else ""}


def test_openais_account_goes_to_openai_alone(monkeypatch):
    from hivemind.minds.language.connection import _strip_headers

    for host, kept in (("api.openai.com", {"openai-organization"}), ("models.example.org", set())):
        headers = {"openai-organization": "org", "x-foo": "bar"}
        _strip_headers(headers, None, host)
        assert set(headers) - {"user-agent", "accept-encoding"} == kept


def test_the_environments_proxy_is_used_and_its_exceptions_are_kept(server, ask, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.root)
    monkeypatch.setenv("NO_PROXY", "")
    ask(url="http://models.example.invalid/v1")
    assert server.headers[0]["host"] == "models.example.invalid"
    monkeypatch.setenv("NO_PROXY", "example.invalid")
    with pytest.raises(MindUnavailable, match="no connection"):
        ask(url="http://models.example.invalid/v1")
    assert len(server.headers) == 1


def test_an_answer_without_end_is_cut_off(server, ask):
    server.think = lambda request: request.send(200, b"x" * (MAX_ANSWER_BYTES + 1))
    with pytest.raises(MindUnavailable, match="not an answer of a model: its answer has more than 8,000,000 bytes"):
        ask()


def test_chunks_without_end_are_cut_off(server, ask):
    def pour(request) -> None:
        request.web.send_response(200)
        request.web.send_header("Content-Type", "text/event-stream")
        request.web.send_header("Transfer-Encoding", "chunked")
        request.web.end_headers()
        chunk = b"data: {}\n\n" * 10_000
        for _ in range(1_000):
            request.web.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))

    server.think = pour
    with pytest.raises(MindUnavailable, match="more than 8,000,000 bytes"):
        ask()


def test_a_drip_without_end_ends_when_its_time_is_up(server, ask):
    def drip(request) -> None:
        request.web.send_response(200)
        request.web.send_header("Content-Length", "1000000")
        request.web.end_headers()
        while not server.silence.wait(0.02):
            request.web.wfile.write(b" ")
            request.web.wfile.flush()

    server.think = drip
    with pytest.raises(MindUnavailable, match="no answer in time"):
        ask(timeout_s=0.2)


@pytest.mark.parametrize(
    ("packing", "body"), [("br", b"{}"), ("zstd", b"{}"), ("gzip", gzip.compress(b"x" * 1_000, mtime=0))]
)
def test_a_packed_answer_is_not_unpacked(server, ask, packing, body):
    server.think = lambda request: request.send(200, body, Content_Encoding=packing)
    with pytest.raises(MindUnavailable, match="compressed"):
        ask()
