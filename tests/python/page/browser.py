"""A real browser without a screen, and what every page in it must keep to."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, TimeoutError, expect, sync_playwright

DESK = {"width": 1360, "height": 900}
TELEPHONE = {"width": 390, "height": 844}
PATIENCE = 30_000  # milliseconds; machines that test are busy
# The same type on every machine, whatever fonts it has.
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>/usr/share/fonts</dir><cachedir prefix="xdg">fontconfig</cachedir>
  <match><test name="family"><string>system-ui</string></test>
    <edit name="family" mode="assign" binding="strong"><string>Inter</string></edit></match>
  <match><test name="family"><string>ui-monospace</string></test>
    <edit name="family" mode="assign" binding="strong"><string>Liberation Mono</string></edit></match>
</fontconfig>
"""


def program() -> str | None:
    names = ("chromium-headless-shell", "chromium", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


@contextlib.contextmanager
def browser(directory: Path) -> Iterator[Browser]:
    fonts = directory / "fonts.conf"
    fonts.write_text(FONTS)
    # Root may not use the browser's own sandbox; nothing but our page is opened in it.
    arguments = ["--disable-gpu", "--font-render-hinting=none"] + (["--no-sandbox"] if os.geteuid() == 0 else [])
    environment = {**os.environ, "FONTCONFIG_FILE": str(fonts)}
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program(), args=arguments, env=environment)
        yield started
        started.close()


class Tab:
    """A page in a context of its own, which notes what a browser complains about."""

    def __init__(
        self,
        browser: Browser,
        url: str,
        token: str = "",
        scheme: str = "light",
        size: dict | None = None,
        expected: tuple[str, ...] = (),
    ) -> None:
        """`expected`: parts of the complaints that a test provokes."""
        is_telephone = size == TELEPHONE
        self.url = url
        self.context: BrowserContext = browser.new_context(
            viewport=size or DESK,
            color_scheme=scheme,
            device_scale_factor=2 if is_telephone else 1,
            has_touch=is_telephone,
            is_mobile=is_telephone,
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="UTC",
            accept_downloads=True,
        )
        self.context.set_default_timeout(PATIENCE)
        if token:
            self.context.add_init_script(f"sessionStorage.setItem('tesser-token', '{token}')")
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.expected = expected
        self.asked: list[str] = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.add_init_script(
            "addEventListener('securitypolicyviolation', (event) =>"
            " console.error('policy', event.violatedDirective, event.blockedURI, event.sourceFile, event.lineNumber))"
        )

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} {message.location.get('url', '')}")

    def open(self, place: str) -> Page:
        for _ in range(5):
            before = len(self.complaints)
            self.page.goto(f"{self.url}/{place}")
            with contextlib.suppress(TimeoutError):
                self.page.wait_for_selector("#main", state="attached")
            # Chromium breaks off what it loads when the machine's network changes, as other programs may have it.
            if not any("ERR_NETWORK_CHANGED" in each for each in self.complaints[before:]):
                break
        return self.page

    def close(self) -> None:
        """Everything that was asked came from the server, and nobody complained."""
        self.context.close()
        expected = (*self.expected, "ERR_NETWORK_CHANGED")
        wrong = [each for each in self.complaints if not any(part in each for part in expected)]
        assert not wrong, wrong
        assert all(each.startswith((self.url, "blob:" + self.url)) for each in self.asked), self.asked


def scrolls_sideways(page: Page) -> list[str]:
    """Elements that stand out of the window; none when nothing has to be pushed to the side."""
    return page.evaluate(
        """() => {
          if (document.scrollingElement.scrollWidth <= innerWidth) { return []; }
          return [...document.querySelectorAll("body *")]
            .filter((node) => node.getBoundingClientRect().right > innerWidth + 1)
            .map((node) => `${node.localName}.${node.className} ${node.getBoundingClientRect().right}`);
        }"""
    )


# What can be computed of the rules for people who see little, or use no pointer: contrast of every text with what lies
# under it, names of everything that can be operated, one title of the first order, languages, sizes of what is tapped.
ACCESSIBILITY = (Path(__file__).parent / "accessibility.js").read_text()


def obstacles(page: Page) -> list[str]:
    return page.evaluate(f"() => {{ {ACCESSIBILITY}; return obstacles(); }}")
