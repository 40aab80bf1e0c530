"""Who may see the page: the browser on this machine that was given its address. Pure."""

import secrets
from collections.abc import Mapping

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The headers of every response: nothing is loaded from elsewhere, and only the page's own scripts run."""


def allowed_hosts(port: int) -> frozenset[str]:
    """The values of ``Host`` that mean this machine; not a name that an attacker has made to point to it."""
    return frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})


def same_token(given: str, token: str) -> bool:
    """Whether ``given`` is the token; the comparison takes equally long however much of it is right."""
    return secrets.compare_digest(given.encode("utf-8", "replace"), token.encode())


def refusal(method: str, headers: Mapping[str, str], hosts: frozenset[str], *, may_write: bool) -> str | None:
    """Why a request is refused; None: it is not.

    ``headers``: by lower-case names. ``may_write``: whether requests may change something.
    """
    if headers.get("host", "") not in hosts:
        return "wrong host: open the address that `ctxfs view` printed"
    origin = headers.get("origin")
    if origin is not None and origin.removeprefix("http://") not in hosts:
        return "the request came from another site"
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return "the request came from another site"
    if method in ("GET", "HEAD"):
        return None
    if not may_write:
        return "this page is read-only: start it with --write"
    return None if method == "POST" and origin is not None else "the request did not come from this page"
