"""all-MiniLM-L6-v2 as a graph of onnxruntime's fused operators with 8-bit products, built from the weights of an ONNX file.

The file's own graph multiplies in 32 bits, removes NaN and applies masks, which takes twice the processor time. The graph
built here computes one text at a time, and a text's vector depends on no other text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_LAYERS, _HEADS = 6, 12
_EXACT_LAYERS = 3
"""In so many layers the last product has 32 bits, because its factor has the largest outliers: the cosine to the original rises
from 0.994 to 0.997."""
_TYPES = {1: "<f4", 3: "i1"}
"""The types of the tensors that are read and written, by their number in ONNX."""


def read_tensors(numpy: Any, model: bytes) -> dict[str, Any]:
    """Return the arrays of an ONNX file by name, in the file's order."""
    arrays = {}
    (graph,) = (value for number, value in _fields(memoryview(model)) if number == 7)
    for tensor in (value for number, value in _fields(graph) if number == 5):
        fields = dict(_fields(tensor))
        if fields[2] in _TYPES and 9 in fields:
            sizes = [value for number, value in _fields(tensor) if number == 1]
            arrays[bytes(fields[8]).decode()] = numpy.frombuffer(fields[9], _TYPES[fields[2]]).reshape(sizes)
    return arrays


def build_graph(numpy: Any, tensors: Mapping[str, Any]) -> bytes:
    """Return the graph as an ONNX file. Its inputs `words` and `positions` have the shape (1, tokens, 384).

    Its only output has the vectors of the tokens.
    """
    nodes, constants = list[bytes](), list[bytes]()
    products = iter([name for name in tensors if name.startswith("val_") and name.endswith("_q")])

    def add(operator: str, *inputs: Any, domain: str = "com.microsoft", attributes: Sequence[bytes] = ()) -> str:
        output = f"{operator}{len(nodes)}"
        fields: list[tuple[int, int | str | bytes]] = [(2, output), (4, operator), (7, domain)]
        for at, value in enumerate(inputs):
            fields.append((1, value if isinstance(value, str) else f"{output}.{at}"))
            if not isinstance(value, str):
                shape, kind = [(1, size) for size in value.shape], 1 if value.dtype.kind == "f" else 3
                constants.append(_message(*shape, (2, kind), (8, f"{output}.{at}"), (9, value.tobytes())))
        nodes.append(_message(*fields, *((5, attribute) for attribute in attributes)))
        return output

    def multiply(factor: str, *, is_exact: bool = False) -> str:
        name = next(products)
        weights, scales = tensors[name], tensors[name.removesuffix("q") + "scale"].reshape(-1)
        if is_exact:
            return add("MatMul", factor, weights * scales, domain="")
        return add("DynamicQuantizeMatMul", factor, weights, scales)

    def normalize(first: str, second: str, part: str, *bias: Any) -> str:
        norm = (tensors[f"{part}.LayerNorm.weight"], tensors[f"{part}.LayerNorm.bias"])
        return add("SkipLayerNormalization", first, second, *norm, *bias)

    states = normalize("words", "positions", "inner.embeddings")
    for number in range(_LAYERS):
        layer = f"inner.encoder.layer.{number}"
        bias = [tensors[f"{layer}.attention.self.{part}.bias"] for part in ("query", "key", "value")]
        factors, heads = [multiply(states) for _ in bias], _message((1, "num_heads"), (3, _HEADS), (20, 2))
        attention = multiply(add("MultiHeadAttention", *factors, numpy.concatenate(bias), attributes=(heads,)))
        output = f"{layer}.attention.output"
        states = normalize(attention, states, output, tensors[f"{output}.dense.bias"])
        inner = add("BiasGelu", multiply(states), tensors[f"{layer}.intermediate.dense.bias"])
        product = multiply(inner, is_exact=number < _EXACT_LAYERS)
        states = normalize(product, states, f"{layer}.output", tensors[f"{layer}.output.dense.bias"])
    numbers = _message((1, _message((1, 1))))
    ends = [(end, _message((1, name), (2, numbers))) for end, name in ((11, "words"), (11, "positions"), (12, states))]
    parts = [(number, part) for number, messages in ((1, nodes), (5, constants)) for part in messages]
    versions = [(8, _message((1, domain), (2, version))) for domain, version in (("", 17), ("com.microsoft", 1))]
    return _message((1, 8), (7, _message((2, "graph"), *parts, *ends)), *versions)


def embeddings(tensors: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Return the model's three tables: the words' vectors as 8-bit numbers, the scales by which to multiply these, and
    the positions' vectors."""
    words, positions, types = (
        f"inner.embeddings.{part}_embeddings.weight" for part in ("word", "position", "token_type")
    )
    positions_and_type = tensors[f"{positions}_q"] * tensors[f"{positions}_scale"] + tensors[types][0]
    return tensors[f"{words}_q"], tensors[f"{words}_scale"], positions_and_type


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield (field number, value) of the integers, texts and submessages in a protobuf message."""
    at = 0

    def read_integer() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value |= (message[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if message[at - 1] < 128:
                return value

    while at < len(message):
        key, value = read_integer(), read_integer()
        if key & 7 == 2:
            yield key >> 3, message[at : at + value]
            at += value
        else:
            yield key >> 3, value


def _message(*fields: tuple[int, int | str | bytes]) -> bytes:
    message = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            message += _integer(number << 3) + _integer(value)
        else:
            content = value.encode() if isinstance(value, str) else value
            message += _integer(number << 3 | 2) + _integer(len(content)) + content
    return bytes(message)


def _integer(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _integer(value >> 7)
