"""`tidegate audit` as users run it: results, exit codes, what is missing, and what is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import psutil
import pyarrow.parquet as pq
import pytest

from tests.pipeline.audit.test_job import faulty, receipts, sent_rows, write
from tests.support.pipeline.commands import (
    SMALL_SPARK,
    TIDEGATE,
    TIMEOUT_S,
    assert_one_line,
    environment,
    tidegate,
)
from tests.support.waiting import wait_until


@pytest.fixture
def records(tmp_path: Path) -> tuple[str, str]:
    sent = sent_rows(100)
    return write(sent, tmp_path / "sent.parquet"), write(receipts(sent)[1:], tmp_path / "received.jsonl")


def test_a_verdict(records: tuple[str, str], tmp_path: Path) -> None:
    sent, received = records
    done = tidegate("audit", "--sent", sent, "--received", received, "--json", *SMALL_SPARK, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout)
    assert (result["sent"], result["received"], result["lost"], result["early"]) == (100, 99, 1, 0)
    assert result["seconds"] > 0
    assert "judging messages" in done.stderr
    assert Path(result["report"]) == tmp_path / "run" / "audit" / "report.html"
    assert Path(result["report"]).is_file()
    assert list((tmp_path / "run" / "audit" / "offending").glob("*.parquet"))


def test_the_broker_path_knows_nothing_of_spark() -> None:
    code = (
        "import sys, tidegate.plugin.cli, tidegate.plugin.daemon.serve, tidegate.index\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('pyspark', 'pyarrow', 'pandas')"
        " or name.startswith('tidegate.pipeline')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_java(records: tuple[str, str], tmp_path: Path) -> None:
    sent, received = records
    bare = environment(PATH=str(tmp_path), JAVA_HOME=None)
    done = tidegate("audit", "--sent", sent, "--received", received, cwd=tmp_path, env=bare)
    assert_one_line(done, "Spark needs Java and there is none: install Java 17 or newer")
    wrong = environment(JAVA_HOME=str(tmp_path))
    done = tidegate("audit", "--sent", sent, "--received", received, cwd=tmp_path, env=wrong)
    assert_one_line(done, "where there is no bin/java: correct it")


def test_with_an_old_java(records: tuple[str, str], tmp_path: Path) -> None:
    sent, received = records
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    old = environment(JAVA_HOME=str(tmp_path))
    done = tidegate("audit", "--sent", sent, "--received", received, cwd=tmp_path, env=old)
    assert_one_line(done, "Java 11 is too old for Spark")


@pytest.mark.parametrize("missing", ["pyspark", "pandas", "crc32c"])
def test_without_the_extra(records: tuple[str, str], tmp_path: Path, missing: str) -> None:
    """A package that cannot be imported, as where the extra `spark` was not installed."""
    sent, received = records
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.abc, sys\n"
        "class Missing(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] == {missing!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    bare = environment(PYTHONPATH=str(tmp_path))
    done = tidegate("audit", "--sent", sent, "--received", received, cwd=tmp_path, env=bare)
    assert_one_line(done, "run pip install 'WHEEL[spark]' with the path of Tidegate's wheel")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--until", "soon"], "--until: 'soon' is no time: write a duration"),
        (["--until", "1763804587"], "--until: 1763804587 ms is in the early 1970s: give milliseconds"),
        (["--gap", "long"], "--gap: 'long' is not a duration"),
        (["--stream"], "--stream needs --checkpoint"),
        (["--once"], "go with --stream"),
        (["--conf", "memory=1g"], "write it as spark.NAME=VALUE"),
        (["--package", "/nowhere.tar.gz"], "there is no package"),
        (["--file", "/nowhere/token"], "there is no such file"),
        (["--service-url", "pulsar://x"], "both --service-url and --admin-url"),
        (["--format", "xml"], "it is parquet, csv or json"),
        (["--report", "/proc/no"], "choose another --report"),
        (["--stream", "--checkpoint", "c", "--metrics", "9"], "write IP:PORT"),
        (["--stream", "--checkpoint", "c"], "follows a directory that files are added to"),
    ],
)
def test_options_that_make_no_sense(
    records: tuple[str, str], tmp_path: Path, arguments: list[str], words: str
) -> None:
    sent, received = records
    done = tidegate("audit", "--sent", sent, "--received", received, *arguments, cwd=tmp_path)
    assert_one_line(done, words)


def test_a_topic_without_a_broker(tmp_path: Path) -> None:
    done = tidegate(
        "audit", "--sent", "persistent://public/default/o", "--received", "r.parquet", cwd=tmp_path
    )
    assert_one_line(done, "is a topic: give --service-url and --admin-url")


def test_a_record_that_is_not_there(records: tuple[str, str], tmp_path: Path) -> None:
    """Said before anything of Spark's is started, or looked for."""
    bare = environment(PATH=str(tmp_path), JAVA_HOME=None)
    for wrong, right in (("sent", "received"), ("received", "sent")):
        where = ["--" + wrong, "nowhere.parquet", "--" + right, records[right == "received"]]
        done = tidegate("audit", *where, cwd=tmp_path, env=bare)
        assert_one_line(done, f"tidegate: {wrong}: there is nothing at {tmp_path}/nowhere.parquet")


def test_a_pattern_that_fits_nothing(records: tuple[str, str], tmp_path: Path) -> None:
    where = ["--sent", "nowhere*.parquet", "--received", records[1]]
    done = tidegate("audit", *where, *SMALL_SPARK, cwd=tmp_path)
    assert done.returncode == 2
    assert f"tidegate: sent: there is nothing at {tmp_path}/nowhere*.parquet" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_dry_run_does_not_go_on_beside_production(records: tuple[str, str], tmp_path: Path) -> None:
    sent, received = records
    done = tidegate(
        "audit",
        "--sent",
        sent,
        "--received",
        received,
        "--stream",
        "--checkpoint",
        "c",
        "--dry-run",
        cwd=tmp_path,
    )
    assert_one_line(done, "--dry-run looks at whole records")
    assert not (tmp_path / "c").exists()


class TestBesideProduction:
    """A stream that is killed with kill -9 in the middle of a round, and started again."""

    def start(self, folder: Path) -> tuple[subprocess.Popen[str], str]:
        """(the command, where its gauges are)."""
        command = subprocess.Popen(
            [
                *TIDEGATE, "audit", "--sent", str(folder / "sent"), "--received", str(folder / "received"),
                "--format", "parquet", "--subscription", "billing", "--stream",
                "--checkpoint", str(folder / "checkpoint"), "--offending", str(folder / "offending"),
                "--trigger", "1ms", "--watermark", "1s", "--grace", "1s",
                "--metrics", "127.0.0.1:0", *SMALL_SPARK,
            ],
            cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert command.stderr is not None
        for line in command.stderr:
            if "metrics: " in line:
                return command, line.partition("metrics: ")[2].strip()
        raise AssertionError(f"it ended with {command.wait()}")

    def gauges(self, url: str) -> dict[str, float]:
        with urlopen(url) as page:  # noqa: S310 our own page on loopback
            lines = page.read().decode().splitlines()
        told = (line.rpartition(" ") for line in lines if line.startswith("tidegate_audit"))
        return {name.removeprefix("tidegate_audit_"): float(value) for name, _, value in told}

    def put(self, folder: Path, name: str, rows: list[dict[str, object]]) -> None:
        """A file that is whole as soon as it is there."""
        Path(write(rows, folder / "new" / f"{name}.parquet")).rename(folder / f"{name}.parquet")

    def test_nothing_is_told_twice_or_left_out(self, tmp_path: Path) -> None:
        sent, received, expected = faulty()
        received.sort(key=lambda row: row["received_at_ms"])
        for kind in ("sent", "received"):
            (tmp_path / kind).mkdir()
            (tmp_path / "new" / kind).mkdir(parents=True)
        self.put(tmp_path, "sent/1", sent)
        self.put(tmp_path, "received/1", received[:200])
        command, url = self.start(tmp_path)
        try:
            counted = 'received_messages{subscription="billing"}'
            wait_until(lambda: self.gauges(url).get(counted) == 200, "a round is done", timeout_s=TIMEOUT_S)
            end = {
                **received[0],
                "message_id": "end",
                "received_at_ms": received[-1]["received_at_ms"] + 60_000,
            }
            self.put(tmp_path, "received/2", [*received[200:], end])
            newest = tmp_path / "checkpoint" / "rounds"
            wait_until(lambda: len(list(newest.iterdir())) > 1, "the next one has begun", timeout_s=TIMEOUT_S)
            (job,) = psutil.Process(command.pid).children()
            os.killpg(job.pid, signal.SIGKILL)
        finally:
            command.kill()
            command.communicate()
        command, url = self.start(tmp_path)
        try:
            wanted = expected["received"]
            wait_until(lambda: self.gauges(url).get(counted) == wanted, "it has gone on", timeout_s=TIMEOUT_S)
            found = self.gauges(url)
        finally:
            command.terminate()
            command.communicate(timeout=TIMEOUT_S)
        of_billing = {
            name: found[f'{name}_messages{{subscription="billing"}}']
            for name in ("delivered", "lost", "early", "unknown", "out_of_order", "pending")
        }
        assert of_billing == {name: expected[name] for name in of_billing}
        assert found["sent_messages"] == expected["sent"]
        for cause, count in expected["repeated_by_cause"].items():
            name = f'repeated_deliveries{{cause="{cause}",subscription="billing"}}'
            assert found[name] == count
        wrong = [row["wrong"] for row in pq.read_table(tmp_path / "offending").to_pylist()]
        told = {kind: wrong.count(kind) for kind in ("lost", "early", "repeated", "out_of_order")}
        assert told == {kind: expected[kind] for kind in told}


def is_spark(process: psutil.Process) -> bool:
    """True if it is Spark's JVM, and not the look at Java's version before it."""
    try:
        return any("org.apache.spark" in one for one in process.cmdline())
    except psutil.Error:
        return False


class TestEnding:
    """However the command ends, nothing of the job is left."""

    def start(self, records: tuple[str, str], tmp_path: Path) -> tuple[subprocess.Popen[str], psutil.Process]:
        """(the command, its job's process) once Spark's JVM runs."""
        sent, received = records
        command = subprocess.Popen(
            [*TIDEGATE, "audit", "--sent", sent, "--received", received, "--master", "local[1]"],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        found: list[psutil.Process] = []

        def running() -> bool:
            assert command.poll() is None
            children = psutil.Process(command.pid).children(recursive=True)
            found[:] = [one for one in children if is_spark(one)]
            return bool(found)

        wait_until(running, "the JVM runs")
        return command, found[0]

    def gone(self, process: psutil.Process) -> bool:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_by_a_signal(self, records: tuple[str, str], tmp_path: Path, number: signal.Signals) -> None:
        command, java = self.start(records, tmp_path)
        command.send_signal(number)
        _, said = command.communicate(timeout=TIMEOUT_S)
        assert command.returncode == 128 + number
        assert said.splitlines()[-1] == "tidegate: interrupted"
        assert self.gone(java)

    def test_by_kill_9(self, records: tuple[str, str], tmp_path: Path) -> None:
        command, java = self.start(records, tmp_path)
        os.kill(command.pid, signal.SIGKILL)
        command.communicate(timeout=TIMEOUT_S)
        began_s = time.monotonic()
        wait_until(lambda: self.gone(java), "the JVM is gone")
        assert time.monotonic() - began_s < TIMEOUT_S
