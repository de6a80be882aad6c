"""Messages of a job: no verdict where there is none, no passwords, no escape codes of a client's."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.pipeline.commands import assert_one_line, tidegate
from tidegate.pipeline.errors import OptionError, PipelineError
from tidegate.pipeline.job import launch
from tidegate.pipeline.job.failures import explained
from tidegate.pipeline.job.view import LineView, TerminalView
from tidegate.pipeline.rebuild import orphans
from tidegate.pipeline.source.options import Options
from tidegate.pipeline.topic.access import Access
from tidegate.pipeline.topic.admin import Admin
from tidegate.pipeline.topic.broker import ServiceUrl
from tidegate.pipeline.topic.names import TopicName
from tidegate.plugin import cli
from tidegate.plugin.errors import DaemonAwayError, UserError
from tidegate.plugin.pages.page import Page

SECRET = "s3cret"  # noqa: S105
GOOD = {"service_url": "pulsar://h", "admin_url": "http://h", "topic": "t"}


@pytest.mark.parametrize(
    ("error", "exit_code"), [(UserError("refused"), 2), (PipelineError("x"), 2), (DaemonAwayError("x"), 3)]
)
def test_1_is_a_verdict_and_no_error_s_exit_code(error: UserError, exit_code: int) -> None:
    assert explained(error).exit_code == exit_code


def test_a_worker_that_did_not_start_in_time_is_told_of_in_words() -> None:
    """As a Structured Streaming query ended on a machine with thirty programs to run."""
    told = explained(
        RuntimeError("[STREAM_FAILED] Query [id = 9c] terminated: Python worker failed to connect back.")
    )
    assert (
        told.message == "a worker did not start in time, most likely for the machine is too busy: start again"
    )


@pytest.mark.parametrize(
    ("command", "exit_code"), [("verify", 2), ("rebuild", 2), ("audit", 2), ("width", 1), ("tune", 1)]
)
def test_nor_is_it_before_there_is_a_job(
    command: str, exit_code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(arguments: list[str]) -> int:
        raise UserError(f"{arguments[0]} is refused")

    monkeypatch.setattr(cli, "_run", refuse)
    monkeypatch.setattr("sys.argv", ["tidegate", command])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, capsys.readouterr().err) == (exit_code, f"tidegate: {command} is refused\n")


@pytest.mark.parametrize(
    "use",
    [
        lambda: Admin(f"http://me:{SECRET}@127.0.0.1:8080", Access()),
        lambda: ServiceUrl.parse(f"pulsar://me:{SECRET}@127.0.0.1:6650"),
        lambda: Options.parse(GOOD | {"admin_url": f"http://me:{SECRET}@h"}),
        lambda: Options.parse(GOOD | {"service_url": f"pulsar://me:{SECRET}@h"}),
        lambda: orphans.BookieLedgers(f"http://me:{SECRET}@127.0.0.1:8000"),
    ],
)
def test_a_password_in_a_url_of_pulsar_is_refused_and_not_repeated(use: Callable[[], object]) -> None:
    with pytest.raises(
        OptionError, match="has no name and password in it: put a token into a file"
    ) as raised:
        use()
    assert SECRET not in str(raised.value)


def test_a_password_in_another_url_is_not_repeated(tmp_path: Path) -> None:
    done = tidegate(
        "rebuild", "orders", "sub", "--admin-url", "http://127.0.0.1:1", "--work", f"nosuch://me:{SECRET}@host/x",
        cwd=tmp_path,
    )  # fmt: skip
    assert_one_line(done, "nosuch://me:…@host/x")
    assert SECRET not in done.stderr


def test_nor_is_it_in_a_log_that_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    log = tmp_path / "job.log"
    log.write_bytes(f"reading s3a://KEY:{SECRET}@bucket/x\n\xff of it\n".encode("latin-1"))
    kept = launch._kept(log)
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.read_text() == "reading s3a://KEY:…@bucket/x\n\ufffd of it\n"


@pytest.mark.parametrize("view", [LineView, TerminalView])
def test_a_name_changes_no_terminal(view: Callable[[Console], LineView | TerminalView]) -> None:
    told = io.StringIO()
    view(Console(file=told)).note("taking in \x1b[31m[bold]sub\n of orders")
    assert told.getvalue() == "taking in \\x1b[31m[bold]sub\\n of orders\n"


def test_nor_does_it_a_report() -> None:
    page = Page("Tidegate audit")
    page.heading("By slice: <b>\x1b[1m")
    page.text("sent: a\u202eb")
    page.table(["<i>"], [["<script>\x1b"]])
    text = page.html()
    assert "By slice: &lt;b&gt;\\x1b[1m" in text
    assert not {"\x1b", "\u202e"} & set(text)
    assert "<script" not in text and "<i>" not in text


class Ledgers:
    """Of some subscriptions a ledger each."""

    def __init__(self, *names: tuple[str, str]) -> None:
        self._names = names

    def list(self) -> Iterator[orphans.LogLedger]:
        return (orphans.LogLedger("home", number, *name) for number, name in enumerate(self._names))

    def remove(self, ledger: orphans.LogLedger) -> None:
        """Nobody asks for it."""


class Nobody(orphans.Named):
    """Needs nothing."""

    def __init__(self) -> None:
        """Asks nobody."""

    def needs(self, ledger: orphans.LogLedger) -> bool:
        return False


@pytest.mark.parametrize(
    ("topic", "subscription", "found"),
    [
        ("orders?", "sub", []),
        ("orders[1]", "sub", [1]),
        ("orders*", "s*b", [0, 1]),
        ("orders1", "su?", []),
    ],
)
def test_only_a_star_stands_for_anything(topic: str, subscription: str, found: list[int]) -> None:
    """The found ledgers may be deleted."""
    names = [(str(TopicName.parse(name)), "sub") for name in ("orders1", "orders[1]")]
    ledgers = orphans.find_orphans(
        Nobody, [Ledgers(*names)], TopicName.parse(topic), subscription, lambda _: None
    )
    assert [one.ledger_id for _, one in ledgers] == found
