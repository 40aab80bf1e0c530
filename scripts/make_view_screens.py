"""Make the pictures of the page for docs/view.md: ``python scripts/make_view_screens.py``. Needs Chromium.

What is on them is the session of ``view_session.py``. They are kept small: a palette of a few dozen colours each.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import anyio
from playwright.sync_api import Browser

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from view.chromium import installed, launched
from view.served import serving
from view_session import SESSION, make_session

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
SCREENS: Mapping[str, tuple[str, int, int, str]] = {
    "view-1400": (f"session/{SESSION}?call=12&item=call_008", 1400, 1080, "light"),
    "view-800-dark": (f"session/{SESSION}?call=24", 800, 1000, "dark"),
    "view-400": (f"session/{SESSION}?call=24", 400, 860, "light"),
}
"""By the picture's name: the address, the width and the height of the window, and its colours."""


def picture(browser: Browser, url: str, name: str) -> Path:
    """Take the picture ``name``."""
    path, width, height, scheme = SCREENS[name]
    light = scheme == "light"
    page = browser.new_page(
        viewport={"width": width, "height": height}, color_scheme="light" if light else "dark", reduced_motion="reduce"
    )
    page.goto(url + path)
    page.locator("#chart-context canvas").wait_for()
    page.wait_for_timeout(500)
    file = IMAGES / f"{name}.png"
    page.screenshot(path=file)
    page.close()
    return file


def main() -> int:
    """Make all of them; 1 without Chromium."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    if (chromium := installed()) is None:
        print("install Chromium first (Debian: apt-get install chromium)")
        return 1
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        anyio.run(make_session, root)
        with serving(root) as url, launched(chromium) as browser:
            for name in SCREENS:
                print(smaller(picture(browser, url, name)))
    return 0


def smaller(file: Path) -> str:
    """Reduce the colours of a picture where pngquant is there, and say how large it is."""
    if (pngquant := shutil.which("pngquant")) is not None:
        subprocess.run([pngquant, "--force", "--ext", ".png", "64", str(file)], check=True)
    return f"{file.name}: {file.stat().st_size:,} bytes"


if __name__ == "__main__":
    sys.exit(main())
