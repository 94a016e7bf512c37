"""The process `telemetry` of a swarm: sends the traces of tasks to a collector, by OTLP over HTTP (the extra `otel`).

No other process imports the SDK or waits for the collector. What could not be sent is read again from the hive's records.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from hivemind.config import HiveConfig
from hivemind.fs import Lock
from hivemind.fs.sockets import wait_for_input
from hivemind.layout import TELEMETRY
from hivemind.presence.identity import check_hive_exists
from hivemind.presence.parts import Parts
from hivemind.presence.service import run_service
from hivemind.presence.status import StatusFile

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SENDING_S = 5.0  # with the SDK's own retries
_LAST_S = 2.0  # for the spans of the last seconds
_MAX_PAUSE_S = 60.0
_REASON_CHARS = 200
_log = logging.getLogger(__name__)


def collector_of(config: HiveConfig) -> str | None:
    """Return the address to which the hive sends traces, or None if nobody has asked for them."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    return config.telemetry.endpoint or next((url for name in _ENDPOINTS if (url := os.environ.get(name))), None)


def has_sdk() -> bool:
    """Check that the extra `otel` is installed, without importing it."""
    with suppress(ModuleNotFoundError):
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    return False


def run_telemetry(hive: Parts, lifeline: int) -> int:
    """Send traces until SIGTERM, or until the descriptor `lifeline` closes. Return the process's exit status."""

    def serve(lock: Lock, status: StatusFile, ends: Sequence[int]) -> None:
        from opentelemetry.sdk.resources import Resource

        from hivemind.telemetry.follower import TraceFollower
        from hivemind.telemetry.spans import VERSION, SpanFactory

        names = {"service.version": VERSION, "hivemind.hive": hive.config.workspace}
        if "OTEL_SERVICE_NAME" not in os.environ and "service.name" not in os.environ.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        ):
            names["service.name"] = "hivemind"
        factory = SpanFactory(Resource.create(names), hive.config.telemetry.content)
        sender = _Sender(hive.config, status)
        follower = TraceFollower(hive, factory, sender.send)
        is_ended = threading.Event()

        def follow() -> None:
            delay_s = float(os.environ.get("OTEL_BSP_SCHEDULE_DELAY") or 5000) / 1000
            pause_s = delay_s
            while not is_ended.wait(pause_s):
                pause_s = delay_s if follower.step() else min(_MAX_PAUSE_S, pause_s * 2)
            follower.step()

        worker = threading.Thread(target=follow, name="traces", daemon=True)
        worker.start()
        status.update(state="idle", last_action=f"to {collector_of(hive.config)}")
        while worker.is_alive() and not wait_for_input(ends, min(1.0, hive.config.hang_after / 3)):
            check_hive_exists(lock, hive.layout)
            status.beat()
        if not worker.is_alive():
            raise SystemExit(1)  # the thread has printed why; the supervisor starts the process again
        is_ended.set()
        worker.join(0 if sender.is_failing else _LAST_S)

    return run_service(hive, TELEMETRY, lifeline, serve)


class _Sender(logging.Handler):
    """Sends spans. If the collector refuses them, logs that once, with the reason from the SDK's log."""

    def __init__(self, config: HiveConfig, status: StatusFile) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        super().__init__()
        sdk_log = logging.getLogger("opentelemetry")
        sdk_log.addHandler(self)
        sdk_log.propagate = False
        url = config.telemetry.endpoint
        endpoint = None if url is None else f"{url.rstrip('/')}/v1/traces"
        self._exporter = OTLPSpanExporter(endpoint, timeout=min(_SENDING_S, config.hang_after / 3))
        self._collector, self._status = collector_of(config), status
        self._reason = ""
        self.is_failing = False

    def emit(self, record: logging.LogRecord) -> None:
        """Remember the SDK's first log message about an export, which has the cause of its failure."""
        self._reason = self._reason or record.getMessage()[:_REASON_CHARS]

    def send(self, spans: Sequence[ReadableSpan]) -> bool:
        """Send spans. Return False if the collector has not taken them."""
        was_failing, self.is_failing, self._reason = self.is_failing, True, ""  # failing until the collector answers
        self.is_failing = self._exporter.export(spans).name != "SUCCESS"
        if self.is_failing != was_failing:
            problem = f"wait: {self._collector} does not take them: {self._reason}" if self.is_failing else None
            _log.warning("traces %s", problem or "are sent again")
            self._status.update(problem=problem)
        return not self.is_failing
