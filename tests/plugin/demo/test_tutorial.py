"""The programs of docs/tutorial.md, on the broker that the page starts: as a newcomer runs them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.support.daemons import run
from tests.support.demo_process import left_behind
from tests.support.java_client import java_command
from tests.support.waiting import wait_until
from tidegate.plugin.local.daemon import without_settings
from tidegate.plugin.local.process import free_ports

pytestmark = [pytest.mark.broker, pytest.mark.timeout(800)]
PAGE = Path(__file__).parents[3] / "docs" / "tutorial.md"
PROGRAMS = ("order_timeouts.py", "retries.py", "Retries.java", "billing.py")


def programs() -> dict[str, str]:
    """The programs of the page by name: the last that the text before a block names."""
    found = {}
    before, *blocks = re.split(r"^```(?:python|java)\n", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    for block in blocks:
        code, _, after = block.partition("\n```\n")
        found[re.findall(r"`(\w+\.(?:py|java))`", before)[-1]] = f"{code}\n"
        before = after
    assert tuple(found) == PROGRAMS
    return found


@dataclass(frozen=True)
class Playground:
    """``tidegate standalone``, the addresses that it printed, and its directory."""

    process: subprocess.Popen[str]
    addresses: dict[str, str]
    directory: Path

    def run(self, name: str) -> list[str]:
        """The lines that a program of the page prints; it succeeds."""
        program = self.directory / name
        program.write_text(programs()[name], "utf-8")
        command = java_command(program) if program.suffix == ".java" else [sys.executable, str(program)]
        # As behind a proxy: no program here goes through it.
        environment = without_settings(os.environ) | {
            "PULSAR_URL": self.addresses["broker"],
            "TIDEGATE_SOCKET": self.addresses["socket"],
            "HTTP_PROXY": "http://127.0.0.1:1",
            "HTTPS_PROXY": "http://127.0.0.1:1",
        }
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    directory = tmp_path_factory.mktemp("playground")
    broker, web, page = free_ports(3)
    with tempfile.TemporaryDirectory(prefix="tidegate-") as short:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "tidegate.plugin.cli", "standalone", "--json",
                "--port", str(broker), "--web-port", str(web), "--page-port", str(page),
                "--socket", str(Path(short) / "tidegate.sock"), "--out", str(directory / "out"),
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, cwd=directory,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.communicate(timeout=60)[1]
            yield Playground(process, json.loads(line), directory)
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert left_behind(directory) == []
        assert not (directory / "out" / "work").exists()


def test_the_broker_answers_as_the_daemon_does(playground: Playground) -> None:
    admin = playground.addresses["admin"]
    told = run("tide", "--admin-url", admin, "--json")
    assert json.loads(told.stdout)["now_ms"], told.stderr
    page = httpx.get(f"{admin}/tidegate/", trust_env=False)
    assert page.is_success and "<title>Tidegate" in page.text


def test_a_paid_order_times_out_no_more(playground: Playground) -> None:
    assert playground.run("order_timeouts.py") == [
        "ordered: 4711, 4712, 4713",
        "4712 is paid, its time-out is cancelled",
        "not paid in time: 4711",
        "not paid in time: 4713",
    ]


def test_a_failed_payment_comes_again_with_growing_pauses(playground: Playground) -> None:
    lines = playground.run("retries.py")
    pauses_s = {
        order: [
            float(pause)
            for pause in re.findall(rf"^{order}: .* again in ([\d.]+) s$", "\n".join(lines), re.M)
        ]
        for order in ("4711", "4713")
    }
    assert [len(pauses_s[order]) for order in ("4711", "4713")] == [2, 4]
    assert pauses_s["4713"] == sorted(pauses_s["4713"])
    assert "4711 is paid at attempt 3" in lines
    assert "4713 has failed 5 times and is a dead letter" in lines


def test_the_java_client_does_the_same(playground: Playground) -> None:
    lines = [line for line in playground.run("Retries.java") if line.startswith("4711")]
    assert lines == [
        "4711: the bank does not answer; again in 500 ms",
        "4711: the bank does not answer; again in 1000 ms",
        "4711 is paid at attempt 3",
    ]


def test_a_billing_run_leaves_evenly(playground: Playground) -> None:
    first, *rest = playground.run("billing.py")
    assert first == "spread over 10 s: True"
    bills = {
        int(second): int(count)
        for second, count in re.findall(r"second +(\d+): +(\d+) bills", "\n".join(rest))
    }
    assert sum(bills.values()) == 1_000
    assert min(bills) >= 0, "none was early"
    # Evenly but for a busy machine: without the spread all leave in the first second.
    assert bills.get(0, 0) < 500
    assert len(bills) >= 4


def test_a_port_in_use_is_one_line(playground: Playground, tmp_path: Path) -> None:
    taken = playground.addresses["broker"].rpartition(":")[2]
    done = subprocess.run(
        [sys.executable, "-m", "tidegate.plugin.cli", "standalone", "--port", taken, "--out", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        f"tidegate: port {taken} is in use: stop what listens there, or choose another --port\n"
    )


def test_killed_itself_it_leaves_no_process(tmp_path: Path) -> None:
    ports = [str(one) for one in free_ports(3)]
    with tempfile.TemporaryDirectory(prefix="tidegate-") as short:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "tidegate.plugin.cli", "standalone", "--out", str(tmp_path / "out"),
                "--port", ports[0], "--web-port", ports[1], "--page-port", ports[2],
                "--socket", str(Path(short) / "tidegate.sock"),
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        )  # fmt: skip
        assert process.stderr is not None
        assert any("starting the broker" in line for line in process.stderr)
        process.kill()
        process.communicate(timeout=120)
        wait_until(lambda: not left_behind(tmp_path), "the guard has ended what ran", timeout_s=180)
