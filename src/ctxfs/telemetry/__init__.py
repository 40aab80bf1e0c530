"""OpenTelemetry: spans for calls and tools, events of the context, metrics. Needs the extra ``otel``."""

from ctxfs.telemetry.telemetry import SessionTelemetry, Telemetry

__all__ = ["SessionTelemetry", "Telemetry"]
