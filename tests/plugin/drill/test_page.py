"""The HTML report as a person sees it: in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.browser import opened
from tests.support.ledgers import finished, round_of
from tidegate.plugin.drill.html import write_report
from tidegate.plugin.drill.session import Result
from tidegate.plugin.drill.verdict import judge

pytestmark = pytest.mark.browser

_PICTURES = """[...document.querySelectorAll('figure svg')].map(svg => {
  const box = svg.getBoundingClientRect();
  const dots = svg.querySelectorAll('image').length;
  return [box.width, box.height, dots, svg.textContent.includes('gap 2.10 s')];
})"""


async def test_the_pictures_of_the_gaps_are_seen(tmp_path: Path) -> None:
    verdicts = [judge(finished(tmp_path / str(number), round_of(number=number))) for number in (1, 2)]
    name = "<b>broker-killed</b>"
    results = [Result(name, "kills", "tidegate", verdicts), Result("other", "", "tidegate", [], ["not done"])]
    index = write_report(results, tmp_path / "report")
    async with opened(index, tmp_path / "profile") as page:
        assert await page.evaluate("document.title") == "Tidegate drills"
        assert (
            await page.evaluate("document.querySelector('h1').innerText") == "Tidegate drills: 1 of 2 failed"
        )
        # Names are text, whatever they look like.
        assert name in await page.evaluate("document.querySelector('h2').innerText")
        pictures = await page.evaluate(_PICTURES)
        assert len(pictures) == 2
        for width, height, dots, has_gap in pictures:
            assert width > 600
            assert height > 200
            assert dots >= 1, "the messages are drawn"
            assert has_gap, "the longest gap is named"
        cell = "getComputedStyle(document.querySelector('td'))"
        assert await page.evaluate(f"[{cell}.whiteSpace, {cell}.fontVariantNumeric]") == [
            "nowrap",
            "tabular-nums",
        ]
        # Nothing sticks out at the side, on a desk and on a telephone.
        for width in (1200, 390):
            await page.call(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=800,
                deviceScaleFactor=1,
                mobile=False,
            )
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
        paper = "getComputedStyle(document.body).backgroundColor"
        ink = "getComputedStyle(document.querySelector('figure svg text')).color"
        light = await page.evaluate(f"[{paper}, {ink}]")
        scheme = [{"name": "prefers-color-scheme", "value": "dark"}]
        await page.call("Emulation.setEmulatedMedia", features=scheme)
        dark = await page.evaluate(f"[{paper}, {ink}]")
        assert light[0] != dark[0], "the page follows the reader's scheme"
