"""What a service receives over HTTP: the settings of docs/observability.md, with the SDK's own exporters."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from ctxfs import Agent, AgentConfig, tool
from ctxfs.agent import Telemetry
from ctxfs.messages import ToolCall
from ctxfs.testing import ScriptedModel


@tool("Read a chapter", ephemeral=1)
async def chapter(n: int) -> str:
    return f"Chapter {n}\n" + "It was a dark and stormy night.\n" * 400


@dataclass
class Service:
    """What was posted to it, with its headers, by path."""

    url: str = ""
    posted: dict[str, list[tuple[dict[str, str], bytes]]] = field(default_factory=dict)


@pytest.fixture
def service() -> Iterator[Service]:
    received = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            received.posted.setdefault(self.path, []).append((headers, body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.url = f"http://127.0.0.1:{server.server_address[1]}/api/public/otel"
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield received
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.anyio
async def test_spans_events_and_metrics_arrive_with_the_headers_that_were_set(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", service.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Basic%20cGs6c2s=,x-langfuse-ingestion-version=4")
    tracers, meters = TracerProvider(), MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    model = ScriptedModel([[ToolCall("chapter", {"n": n})] for n in (1, 2)] + ["Stormy."])
    telemetry = Telemetry(tracer_provider=tracers, meter_provider=meters)
    async with Agent(model, AgentConfig(tools=[chapter], telemetry=telemetry, offload_root_path=tmp_path)) as agent:
        await agent.query("How is the weather in this book?")
    tracers.shutdown()
    meters.shutdown()
    traces, metrics = service.posted["/api/public/otel/v1/traces"], service.posted["/api/public/otel/v1/metrics"]
    for headers, _ in (*traces, *metrics):
        assert headers["authorization"] == "Basic cGs6c2s="
        assert headers["x-langfuse-ingestion-version"] == "4"
        assert headers["content-type"] == "application/x-protobuf"
    requests = [ExportTraceServiceRequest.FromString(body) for _, body in traces]
    spans = [s for one in requests for r in one.resource_spans for scope in r.scope_spans for s in scope.spans]
    named = {span.name for span in spans} | {event.name for span in spans for event in span.events}
    assert {"execute_tool chapter", "chat scripted", "ctxfs.evict"} <= named
    measured = [ExportMetricsServiceRequest.FromString(body) for _, body in metrics]
    names = {m.name for one in measured for r in one.resource_metrics for s in r.scope_metrics for m in s.metrics}
    assert {"gen_ai.client.token.usage", "ctxfs.context.tokens", "ctxfs.freed.tokens"} <= names
