"""The page in headless Chromium. `python -m tests.serving.test_page URL FOLDER` writes the screenshots of the docs."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.serving.conftest import Live

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or ""

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="needs Chromium: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser: Browser, url: str, width: int, dark: bool = False) -> Page:
    page = browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
    )
    page.goto(url)
    page.wait_for_selector("li")
    return page


def compare(page: Page) -> None:
    page.select_option("#right", "bm25")
    page.wait_for_selector("#columns > div:nth-child(2) li")


def test_the_page(browser: Browser, live: Live) -> None:
    page = opened(browser, live.url, 1280)
    errors: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    assert page.locator("li").count() == 8
    assert "shoes" in page.inner_text("#columns h2")
    assert page.locator(".text span[title]").count() > 0  # coloured words
    assert " ms" in page.inner_text("#columns .soft")

    page.fill("#query", "cat")
    page.fill("#items", "cat food\n\n<b>dog</b> & 'cat'\nred shoes")  # ranked as one types
    page.wait_for_function("document.querySelectorAll('li').length === 3")
    texts = sorted(page.locator("li .text").all_inner_texts())
    assert texts == ["<b>dog</b> & 'cat'", "cat food", "red shoes"]

    page.focus("#threshold")  # keyboard only
    for _ in range(3):
        page.keyboard.press("PageUp")
    assert page.locator("li.out").count() >= 1
    assert page.inner_text("#at") != "none"

    for kind, part in (("curl", "curl http"), ("python", "urllib"), ("json", '"items"')):
        assert part in page.evaluate("kind => copyText(kind)", kind)
    copied = page.evaluate("copyText('python')")
    body: dict[str, object] = {}
    exec(copied.split("headers =")[0], body)
    assert len(body["body"]["items"]) == 3  # type: ignore[index, call-overload]
    assert json.loads(page.evaluate("copyText('json')"))["model"] == "shoes"

    compare(page)
    assert page.locator("#columns > div").count() == 2
    page.fill("#query", " ")
    page.wait_for_selector("#error:has-text('Type a query')")
    assert not errors
    assert all(url.startswith(live.url) for url in asked)  # nothing from elsewhere
    assert page.evaluate("localStorage.length + sessionStorage.length + document.cookie.length") == 0


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_a_phone(browser: Browser, live: Live, dark: bool) -> None:
    page = opened(browser, live.url, 390, dark)
    compare(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) < 200) == dark


if __name__ == "__main__":
    from playwright.sync_api import sync_playwright

    with sync_playwright() as api:
        chromium = api.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, width, dark in (
            ("page", 1280, False),
            ("page-phone", 390, False),
            ("page-dark", 1280, True),
        ):
            shown = opened(chromium, sys.argv[1], width, dark)
            compare(shown)
            shown.fill("#threshold", "300")
            shown.wait_for_timeout(500)
            shown.screenshot(path=Path(sys.argv[2]) / f"{name}.png", full_page=True)
