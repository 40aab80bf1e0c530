"""Who may see the page: the browser on this machine that was given its address. Pure."""

import secrets
from collections.abc import Mapping

__all__ = ["HEADERS", "allowed_hosts", "refusal", "same_token"]

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
"""The headers of every answer: nothing is loaded from elsewhere, and only the page's own scripts run."""


def allowed_hosts(port: int) -> frozenset[str]:
    """The values of ``Host`` that mean this machine: a name that an attacker makes point here is not among them."""
    return frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})


def same_token(given: str, token: str) -> bool:
    """Whether a request knows the token; takes the same time however much of it is right."""
    return secrets.compare_digest(given.encode("utf-8", "replace"), token.encode())


def refusal(method: str, headers: Mapping[str, str], hosts: frozenset[str], *, may_write: bool) -> str | None:
    """Why a request is refused; None: it is not.

    ``headers`` by lower-case names. ``may_write``: requests that change something are answered.
    """
    if headers.get("host", "") not in hosts:
        return "wrong host: open the address that `ctxfs view` printed"
    origin = headers.get("origin")
    if origin is not None and origin.removeprefix("http://") not in hosts:
        return "another site asked"
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return "another site asked"
    if method in ("GET", "HEAD"):
        return None
    if not may_write:
        return "this page is read only: start it with --write"
    return None if method == "POST" and origin is not None else "not a request of this page"
