"""The pages as HTML. The contents of sessions are not trusted: they are escaped, and shown as text.

The only module that imports ``jinja2``.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from ctxfs.session.content.visible import visible_text
from ctxfs.text import figures

_HERE = Path(__file__).parent

MEDIA_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}


def static_files() -> dict[str, tuple[bytes, str]]:
    """The files that pages load, with their media types, by name."""
    found = sorted((_HERE / "static").iterdir())
    return {file.name: (file.read_bytes(), MEDIA_TYPES[file.suffix]) for file in found if file.suffix in MEDIA_TYPES}


class Pages:
    """Renders the templates.

    Args:
        redact: applied to each text before it is shown; None: texts are shown as they are.
    """

    def __init__(self, redact: Callable[[str], str] | None = None) -> None:
        sources = {file.name: file.read_text(encoding="utf-8") for file in (_HERE / "templates").iterdir()}
        self._redact = redact
        self._templates = Environment(
            loader=DictLoader(sources),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=self._shown,
        )
        for name in figures.__all__:
            self._templates.filters[name] = getattr(figures, name)

    def render(self, template: str, **values: Any) -> str:
        """The page ``template`` with these values."""
        return self._templates.get_template(template).render(values)

    @staticmethod
    def markup(own: str) -> str:
        """A text of our own, which is not escaped: a style sheet or a script."""
        return Markup(own)  # noqa: S704 - it comes with ctxfs

    def _shown(self, value: Any) -> Any:
        """A value as it is put on a page: our own markup unchanged, and any other text made harmless."""
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        return visible_text(value if self._redact is None else self._redact(value))
