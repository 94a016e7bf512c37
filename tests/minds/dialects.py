"""The other protocols in which the played model is asked: Anthropic's messages, Gemini's generateContent, Ollama's words."""

from __future__ import annotations

import base64
import json
from typing import Any, ClassVar

from tests.minds.request import Request

__all__ = ["AnthropicRequest", "GeminiRequest", "OllamaRequest", "request_of"]


def request_of(path: str) -> type[Request]:
    """The protocol that is spoken at a path."""
    for protocol in (AnthropicRequest, GeminiRequest, OllamaRequest):
        if path.startswith(protocol.place):
            return protocol
    return Request


class AnthropicRequest(Request):
    root = ""
    place: ClassVar[str] = "/v1/messages"

    @property
    def user(self) -> str:
        return "".join(part["text"] for part in _blocks(self.messages[0]))

    @property
    def system(self) -> str:
        system = self.body["system"]
        return system if isinstance(system, str) else "".join(part["text"] for part in system)

    @property
    def conversation(self) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for message in self.messages:
            for block in _blocks(message):
                if block["type"] == "text":
                    rows.append((message["role"], block["text"]))
                elif block["type"] == "tool_use":
                    rows.append(("call", block["name"], block["input"]))
                elif block["type"] == "tool_result":
                    rows.append(("result", block["tool_use_id"], "".join(part["text"] for part in _blocks(block))))
        return rows

    @property
    def thinking(self) -> list[str]:
        blocks = [block for message in self.messages for block in _blocks(message) if block["type"] == "thinking"]
        assert all(block["signature"] == f"signed {block['thinking']}" for block in blocks)
        return [block["thinking"] for block in blocks]

    @property
    def key(self) -> str:
        return self.headers.get("X-Api-Key") or super().key

    @property
    def tools(self) -> list[str]:
        return [tool["name"] for tool in self.body.get("tools", ())]

    def error(self, status: int, message: str, code: str | None = None, **headers: str) -> None:
        error = {"type": code or "invalid_request_error", "message": message}
        self.send(status, json.dumps({"type": "error", "error": error, "request_id": "req_1"}), **headers)

    def completion(
        self, text, calls, finish=None, tokens_out=None, usage=True, cached=0, thinking=None, written=0
    ) -> str:
        content: list[dict[str, Any]] = (
            [{"type": "thinking", "thinking": thinking, "signature": f"signed {thinking}"}] if thinking else []
        )
        content += [{"type": "text", "text": text}] if text else []
        content += [
            {"type": "tool_use", "id": f"toolu_{at}", "name": tool, "input": _object(args)}
            for at, (tool, args) in enumerate(calls or ())
        ]
        out = tokens_out if tokens_out is not None else max(1, len(json.dumps(content)) // 4)
        ends = {"length": "max_tokens", "content_filter": "refusal", None: "tool_use" if calls else "end_turn"}
        if usage:
            self.server.charge(self.tokens_in, out)
        return json.dumps({
            "id": "msg_1", "type": "message", "role": "assistant", "model": self.body["model"], "content": content,
            "stop_reason": ends[finish], "stop_sequence": None,
            "usage": {
                "input_tokens": self.tokens_in - cached - written if usage else 0, "output_tokens": out if usage else 0,
                "cache_read_input_tokens": cached, "cache_creation_input_tokens": written,
            },
        })  # fmt: skip

    def limited(self, after_s: int | None = None) -> None:
        fields = {} if after_s is None else {"Retry_After": str(after_s)}
        self.error(
            429, "This request would exceed your rate limit of 50 requests per minute.", "rate_limit_error", **fields
        )

    def troubled(self) -> None:
        self.error(529, "Overloaded", "overloaded_error")

    def wrong_key(self) -> None:
        self.error(401, f"invalid x-api-key {self.key}", "authentication_error")

    def too_long(self) -> None:
        self.error(400, "prompt is too long: 212345 tokens > 200000 maximum")

    def bound_too_high(self) -> None:
        self.error(400, "max_tokens: 4096 > 2048, which is the maximum allowed number of output tokens for played")

    def refuse(self) -> None:
        self.answer("I can't help with that.", finish="content_filter")


class GeminiRequest(Request):
    root = ""
    place: ClassVar[str] = "/v1beta/models/"

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body["contents"]

    @property
    def user(self) -> str:
        return "".join(part["text"] for part in self.messages[0]["parts"])

    @property
    def system(self) -> str:
        return "".join(part["text"] for part in self.body["systemInstruction"]["parts"])

    @property
    def conversation(self) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for message in self.messages:
            for part in message["parts"]:
                if "functionCall" in part:
                    rows.append(("call", part["functionCall"]["name"], part["functionCall"]["args"]))
                elif "functionResponse" in part:
                    answer = part["functionResponse"]
                    rows.append(("result", answer["id"], next(iter(answer["response"].values()))))
                elif not part.get("thought"):
                    rows.append(("assistant" if message["role"] == "model" else "user", part["text"]))
        return rows

    @property
    def thinking(self) -> list[str]:
        signed = [
            part["thoughtSignature"]
            for message in self.messages
            for part in message["parts"]
            if "thoughtSignature" in part
        ]
        texts = [base64.b64decode(code).decode() for code in signed]
        return [text.removeprefix("signed ") for text in texts if text.startswith("signed ")]

    @property
    def key(self) -> str:
        return self.headers.get("X-Goog-Api-Key", "")

    @property
    def tools(self) -> list[str]:
        return [tool["name"] for group in self.body.get("tools", ()) for tool in group["functionDeclarations"]]

    @property
    def bound(self) -> int:
        return self.body["generationConfig"]["maxOutputTokens"]

    def error(self, status: int, message: str, code: str | None = None, **headers: str) -> None:
        self.fail(status, message, code or "INVALID_ARGUMENT", [], **headers)

    def fail(self, status: int, message: str, name: str, details: list[dict[str, Any]], **headers: str) -> None:
        error = {"code": status, "message": message, "status": name, "details": details}
        self.send(status, json.dumps({"error": error}), **headers)

    def completion(self, text, calls, finish=None, tokens_out=None, usage=True, cached=0, thinking=None) -> str:
        parts: list[dict[str, Any]] = [{"text": thinking, "thought": True}] if thinking else []
        parts += [{"text": text}] if text else []
        parts += [{"functionCall": {"name": tool, "args": _object(args)}} for tool, args in calls or ()]
        if thinking and parts:  # the last part of an answer is signed
            parts[-1]["thoughtSignature"] = base64.b64encode(f"signed {thinking}".encode()).decode()
        out = tokens_out if tokens_out is not None else max(1, len(json.dumps(parts)) // 4)
        ends = {"length": "MAX_TOKENS", "content_filter": "SAFETY", None: "STOP"}
        reply: dict[str, Any] = {
            "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": ends[finish], "index": 0}],
            "modelVersion": "played",
        }
        if usage:
            reply["usageMetadata"] = {
                "promptTokenCount": self.tokens_in, "candidatesTokenCount": out, "totalTokenCount": self.tokens_in + out,
                "cachedContentTokenCount": cached,
            }  # fmt: skip
            self.server.charge(self.tokens_in, out)
        return json.dumps(reply)

    def limited(self, after_s: int | None = None) -> None:
        details = [] if after_s is None else [_google("RetryInfo", retryDelay=f"{after_s}s")]
        self.fail(429, "Resource has been exhausted (e.g. check quota).", "RESOURCE_EXHAUSTED", details)

    def troubled(self) -> None:
        self.error(503, "The model is overloaded. Please try again later.", "UNAVAILABLE")

    def wrong_key(self) -> None:
        details = [_google("ErrorInfo", reason="API_KEY_INVALID", domain="googleapis.com")]
        self.fail(400, "API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT", details)

    def too_long(self) -> None:
        self.error(400, "The input token count (1048600) exceeds the maximum number of tokens allowed (1048576).")

    def bound_too_high(self) -> None:
        self.error(
            400,
            "Unable to submit request because it has a maxOutputTokens value of 4096 but the supported range is from 1 "
            "(inclusive) to 2049 (exclusive).",
        )

    def refuse(self) -> None:
        """The prompt itself was blocked: the candidates are missing."""
        usage = {"promptTokenCount": self.tokens_in, "totalTokenCount": self.tokens_in}
        self.server.charge(self.tokens_in, 0)
        self.send(200, json.dumps({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": usage}))


class OllamaRequest(Request):
    """OpenAI's protocol, with its own errors."""

    root = "/ollama/v1"
    place: ClassVar[str] = "/ollama/"
    thoughts: ClassVar[str] = "reasoning"

    def error(self, status: int, message: str, code: str | None = None, **headers: str) -> None:
        error = {"message": message, "type": "api_error", "param": None, "code": None}
        self.send(status, json.dumps({"error": error}), **headers)

    def limited(self, after_s: int | None = None) -> None:
        fields = {} if after_s is None else {"Retry_After": str(after_s)}
        self.error(429, "too many requests", **fields)

    def troubled(self) -> None:
        self.error(503, "server busy, please try again.  maximum pending requests exceeded")

    def wrong_key(self) -> None:
        self.error(401, "unauthorized")

    def too_long(self) -> None:
        self.error(400, "the input length exceeds the context length")

    def bound_too_high(self) -> None:
        self.error(400, "num_predict is out of range")

    def refuse(self) -> None:
        self.answer("I can't help with that.", finish="content_filter")


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _object(arguments: Any) -> Any:
    """Arguments as these protocols have them: never as text, so half a text is an object of something else."""
    return {"partial": arguments} if isinstance(arguments, str) else arguments


def _google(kind: str, **more: Any) -> dict[str, Any]:
    return {"@type": f"type.googleapis.com/google.rpc.{kind}", **more}
