"""Write ``src/ctxfs/messages/models/table.py`` from ``genai-prices``: windows, prices and prompt caches of models.

``python scripts/make_model_table.py`` makes it for today, ``--date 2026-11-22`` for another day. The same version of
``genai-prices`` and the same day give the same bytes. What genai-prices lacks is in ``ctxfs.messages.models.genai``.
"""

import argparse
from datetime import UTC, date, datetime
from importlib.metadata import version
from pathlib import Path

from genai_prices.data import providers

from ctxfs.messages.models.genai import Row, rows_of

TABLE = Path(__file__).resolve().parent.parent / "src" / "ctxfs" / "messages" / "models" / "table.py"

HEAD = '''"""What is known of models, by name: a ``Row`` each. Prices are those of ``DATE``.

Made by ``scripts/make_model_table.py`` from genai-prices, whose licence is in ``ctxfs/data/LICENSE-genai-prices``: edit
neither rows nor head by hand.
"""

from collections.abc import Mapping

from ctxfs.messages.models.genai import Row

VERSION = "{version}"
DATE = "{day}"

# fmt: off
# ruff: noqa: E501
ROWS: Mapping[str, Row] = {{
'''


def table(day: date) -> str:
    """The text of the module, at the prices of ``day``."""
    lines = (f'    "{name}": {_written(row)},\n' for name, row in sorted(rows_of(providers, day).items()))
    return HEAD.format(version=version("genai-prices"), day=day) + "".join(lines) + "}\n"


def _written(row: Row) -> str:
    return repr(row).replace("'", '"')


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--date", type=date.fromisoformat, default=datetime.now(UTC).date())
    TABLE.write_text(table(parser.parse_args().date))
