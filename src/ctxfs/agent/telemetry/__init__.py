"""OpenTelemetry: spans for calls and tools, events of the context, metrics. Needs the extra ``otel``."""
