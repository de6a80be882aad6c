"""The HTML report as a person sees it: in a real browser."""

from __future__ import annotations

from dataclasses import replace
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
    results.append(replace(results[0], drill="cluster-detached", tracker="in-memory"))
    index = write_report(results, tmp_path / "report", "tidegate 1, on Linux. tidegate drill run --rounds 2")
    async with opened(index, tmp_path / "profile") as page:
        assert await page.evaluate("document.title") == "Tidegate drills"
        assert (
            await page.evaluate("document.querySelector('h1').innerText") == "Tidegate drills: 1 of 3 failed"
        )
        # Names are text, whatever they look like.
        assert name in await page.evaluate("document.querySelector('h2').innerText")
        pictures = await page.evaluate(_PICTURES)
        assert len(pictures) == 4
        first = await page.evaluate("document.querySelector('p').innerText")
        assert first.endswith(" UTC. tidegate 1, on Linux. tidegate drill run --rounds 2")
        assert "3 drills, 4 rounds. " in await page.evaluate("document.body.innerText")
        for width, height, dots, has_gap in pictures:
            assert width > 600
            assert height > 200
            assert dots >= 1, "the messages are drawn"
            assert has_gap, "the longest gap is named"
        cell = "getComputedStyle(document.querySelector('td + td'))"
        assert await page.evaluate(f"[{cell}.whiteSpace, {cell}.fontVariantNumeric]") == [
            "nowrap",
            "tabular-nums",
        ]
        # Nothing sticks out at the side, on a desk and on a telephone.
        for width in (1280, 390):
            await page.call(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=800,
                deviceScaleFactor=1,
                mobile=False,
            )
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
            if width == 1280:
                wide = "document.querySelector('.wide')"
                assert await page.evaluate(f"{wide}.scrollWidth <= {wide}.clientWidth"), (
                    "no bar hides a column"
                )
        paper = "getComputedStyle(document.body).backgroundColor"
        ink = "getComputedStyle(document.querySelector('figure svg text')).color"
        light = await page.evaluate(f"[{paper}, {ink}]")
        scheme = [{"name": "prefers-color-scheme", "value": "dark"}]
        await page.call("Emulation.setEmulatedMedia", features=scheme)
        dark = await page.evaluate(f"[{paper}, {ink}]")
        assert light[0] != dark[0], "the page follows the reader's scheme"
