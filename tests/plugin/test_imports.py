"""Modules that a start does not load: the time of a start is that of its imports."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from tests.support.daemons import run
from tidegate.plugin import cli, command_line
from tidegate.plugin.commands import serve

MAIN = "import sys; from tidegate.plugin.cli import main; sys.argv = ['tidegate', *{arguments!r}]\n"
LOADED = "print('loaded', *sys.modules)"
NEVER = ("pyspark", "matplotlib", "pulsar", "pandas", "pyarrow")
LATER = ("aiohttp", "structlog", "rich", "prometheus_client")
NOT_OURS = ("pydantic", "importlib.metadata")  # Typer checks with it what is typed; we need it for nothing


def loaded_by(code: str) -> set[str]:
    """The modules that a Python has loaded after running `code`, or when `code` itself says so."""
    told = code if "'loaded'" in code else f"{code}\n{LOADED}"
    done = subprocess.run(
        [sys.executable, "-c", told], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.splitlines()[-1].split()[1:])


def ran(*arguments: str) -> str:
    return (
        MAIN.format(arguments=arguments)
        + "try:\n    main()\nexcept SystemExit as ended:\n    assert ended.code == 0, ended.code"
    )


@pytest.mark.parametrize("arguments", [("--help",), ()])
def test_the_list_of_commands_loads_none_of_them(arguments: tuple[str, ...]) -> None:
    loaded = loaded_by(ran(*arguments))
    assert not loaded.intersection(NEVER + LATER + NOT_OURS + ("numpy", "asyncio"))
    assert not [name for name in loaded if name.startswith(("tidegate.plugin.commands", "tidegate.index"))]
    assert not [name for name in loaded if name.startswith("tidegate.pipeline")]


def test_help_of_a_command_does_not_load_what_runs_it() -> None:
    loaded = loaded_by(ran("serve", "--help"))
    assert "tidegate.plugin.commands.serve" in loaded
    assert not loaded.intersection(NEVER + LATER + ("numpy",))


def test_a_daemon_listens_before_it_loads_what_serves_metrics_and_writes_logs() -> None:
    """It needs neither to take a broker's frames. A thread loads the rest."""
    code = "\n".join(
        (
            "import asyncio, sys, tempfile",
            "from pathlib import Path",
            "from tidegate.plugin.daemon.logs import forward_standard_logging, make_logger",
            "from tidegate.plugin.daemon.server import Server",
            "from tidegate.plugin.daemon.settings import load_settings",
            "from tidegate.plugin.daemon.serve import running_daemon",
            "begin, at_start = Server.start, set()",
            "def start(server):",
            "    begin(server)",
            "    at_start.update(sys.modules)",
            "Server.start = start",
            "async def serve(folder):",
            "    log = make_logger('json', 'info')",
            "    forward_standard_logging(log)",
            "    data, socket = Path(folder) / 'data', Path(folder) / 's'",
            "    settings = load_settings({'data': data, 'socket': socket, 'http': '127.0.0.1:0'})",
            "    async with running_daemon(settings, log) as daemon:",
            "        assert daemon.http_port and b'tidegate_build_info' in await daemon.exposition()",
            "with tempfile.TemporaryDirectory(prefix='tg-') as folder:",
            "    asyncio.run(serve(folder))",
            "assert 'aiohttp' in sys.modules and 'prometheus_client' in sys.modules",
            "print('loaded', *at_start)",
        )
    )
    loaded = loaded_by(code)
    assert {"tidegate.plugin.daemon.engine", "rocksdict", "numpy"} <= loaded
    assert not loaded.intersection(NEVER + LATER + NOT_OURS)


def test_a_daemon_whose_flags_are_as_they_should_be_does_not_load_what_would_tell_what_is_wrong() -> None:
    code = "\n".join(
        (
            "import sys, tidegate.plugin.commands.daemon as daemon",
            "daemon.run_daemon = lambda flags, config: print(flags, config)",
            ran("serve", "--data", "d", "--socket=s", "--config", "c"),
            LOADED,
        )
    )
    assert not loaded_by(code).intersection(("typer", "click", "rich", "pydantic"))


def test_the_flags_of_serve_are_read_as_typer_reads_them() -> None:
    flags = {name: str(kind) for name, kind in serve.serve.__annotations__.items() if name != "return"}
    assert {f"--{name}".replace("_", "-") for name in flags} == set(cli.SERVE_FLAGS)
    for name, kind in cli.SERVE_FLAGS.items():
        assert f"{kind.__name__} | None" in flags[name[2:].replace("-", "_")], name
    read = cli.serve_flags(["--data", "/d", "--http-token-file=/t=1", "--log-level", "info"])
    assert read == {"data": Path("/d"), "http_token_file": Path("/t=1"), "log_level": "info"}


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--data"], ["--data", ""], ["--data="], ["--nodata", "d"], ["d"], ["--data", "--socket"]],
)
def test_what_is_not_as_it_should_be_is_left_to_typer(arguments: list[str]) -> None:
    assert cli.serve_flags(arguments) is None


def test_the_list_cuts_no_summary_on_a_terminal_of_80_columns() -> None:
    listed = run("--help", COLUMNS="80").stdout.splitlines()
    for name, command in command_line._COMMANDS.items():
        assert f"  {name:<13}  {command.summary}" in listed


def test_the_list_says_of_each_command_what_the_command_says() -> None:
    for name, command in command_line._COMMANDS.items():
        app = typer.Typer()
        app.callback()(lambda: None)
        importlib.import_module(command.module).register(app)
        (registered,) = [
            each
            for each in typer.main.get_command(app).commands.values()  # type: ignore[attr-defined]
            if each.name == name
        ]
        assert registered.help.split("\n\n")[0].replace("\n", " ") == command.summary
