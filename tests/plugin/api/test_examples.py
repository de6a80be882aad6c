"""The programs in docs/http-examples.md, run against a daemon."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deciding import TOPIC, waiting
from tests.support.served import TOKEN, Served
from tidegate.index import SubscriptionName
from tidegate.plugin.local import toolchain
from tidegate.plugin.local.daemon import without_settings

PAGE = Path(__file__).parents[3] / "docs" / "http-examples.md"
LANGUAGES = {"bash": "curl.sh", "python": "cancel.py", "go": "cancel.go", "java": "Cancel.java"}


def programs() -> dict[str, str]:
    found = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert [language for language, _ in found] == list(LANGUAGES)
    return dict(found)


def command(language: str) -> list[str]:
    """The words before a program's name; skips, and says why, where its language is missing."""
    if language == "java":
        jdk = toolchain.find_jdk(os.environ)
        if isinstance(jdk, toolchain.Problem):
            pytest.skip(jdk.text)
        return [str(jdk.path)]
    if language == "python":
        return [sys.executable]
    tool = {"bash": "curl", "go": "go"}[language]
    if shutil.which(tool) is None:
        pytest.skip(f"there is no {tool} here: its example is not run")
    return ["bash"] if language == "bash" else ["go", "run"]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_an_example(served: Served, short_dir: Path, language: str) -> None:
    await waiting(served.broker, TOPIC, 2, subscription="billing")
    program = short_dir / LANGUAGES[language]
    program.write_text(programs()[language], "utf-8")
    environment = without_settings(os.environ) | {
        "TIDEGATE_ADMIN_URL": served.url,
        "TIDEGATE_TOKEN": TOKEN,
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=mod",
        "GO111MODULE": "off",
        "NO_PROXY": "127.0.0.1",
    }
    line = [*command(language), str(program), "5:1", "5:2", "5:3"]

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(line, capture_output=True, text=True, env=environment, timeout=300, check=False)

    done = await asyncio.to_thread(run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5:0" in done.stdout
    assert re.search(r'"?done"?[=:] ?2\b', done.stdout), done.stdout
    assert re.search(r'"?too_late"?[=:] ?1\b', done.stdout), done.stdout
    index = served.daemon.engine.catalog.get(SubscriptionName(TOPIC, "billing"))
    assert index is not None
    assert {(5, 1), (5, 3)}.isdisjoint(index.state.held)
    assert len(index.state.held) == 98
