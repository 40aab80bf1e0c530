"""Checks of the settings that both of our clients take."""

from collections.abc import Mapping

from ctxfs.errors import ConfigError
from ctxfs.errors.checks import require_int, require_kind, require_number, require_text

REPLACED = {
    "retry": "give max_retries; the delays begin at half a second and double, and Retry-After counts up to 60 seconds",
    "sleep": "give max_retries=0 and wait yourself",
}
"""What to write for a setting that the clients do not have any more."""


def check_client(
    *,
    model: object,
    api_key: object,
    base_url: object,
    max_tokens: object,
    options: object,
    timeout_s: object,
    max_retries: object,
) -> None:
    """Raise ``ConfigError`` for a setting of another type, or one that cannot work."""
    require_text("model", model)
    require_kind("api_key", api_key, str, "a key")
    require_kind("base_url", base_url, str, "a URL")
    require_int("max_tokens", max_tokens, at_least=1)
    require_kind("options", options, Mapping, "a mapping of fields of the request")
    require_number("timeout_s", timeout_s, at_least=0)
    if not timeout_s:
        raise ConfigError("timeout_s is 0: use more than 0 seconds")
    require_int("max_retries", max_retries, at_least=0)
    if isinstance(options, Mapping) and "stream" in options:
        raise ConfigError("options: a reply is always streamed: leave out stream")
