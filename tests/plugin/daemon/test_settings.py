"""Settings: where they come from, which one wins, and what is said about those that make no sense."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidegate.plugin.daemon import settings as settings_module
from tidegate.plugin.daemon.serve import index_options
from tidegate.plugin.daemon.settings import Settings, load_settings, read_token, unknown_variables
from tidegate.plugin.errors import ConfigError
from tidegate.plugin.telemetry.address import HttpAddress


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATA", "SOCKET", "HTTP", "LOG_LEVEL", "HEARTBEAT_MS"):
        monkeypatch.delenv(f"TIDEGATE_{name}", raising=False)


def config_file(directory: Path, text: str) -> Path:
    path = directory / "tidegate.toml"
    path.write_text(text, "utf-8")
    return path


def test_flags_win_over_the_environment_and_the_environment_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = config_file(tmp_path, 'data = "file"\nsocket = "file"\nheartbeat_ms = 100\nlog_level = "error"\n')
    monkeypatch.setenv("TIDEGATE_DATA", "environment")
    monkeypatch.setenv("TIDEGATE_SOCKET", "environment")
    monkeypatch.setenv("TIDEGATE_HEARTBEAT_MS", "200")
    settings = load_settings({"data": Path("flag"), "socket": None}, path)
    assert settings.data == Path("flag")
    assert settings.socket == Path("environment")
    assert settings.heartbeat_ms == 200
    assert settings.log_level == "error"
    assert settings.commit_entries == 10_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("heartbeat_ms = 100\n", "data is not set: give --data, TIDEGATE_DATA or data in the config file"),
        ('data = "d"\nhartbeat_ms = 100\n', "hartbeat_ms is not a setting (in "),
        (
            'data = "d"\nheartbeat_ms = 1\n',
            "heartbeat_ms: must be a whole number from 50 to 600000 (it is '1', in /",
        ),
        ('data = "d"\nhttp = "here"\n', "http: must be an IP address and a port"),
        ('data = "d"\nhttp = "localhost:80"\n', "http: must be an IP address and a port"),
        ('data = "d"\nhttp = "127.0.0.1:70000"\n', "http: must be an IP address and a port"),
        ('data = "d"\nhttp = "0.0.0.0:80"\n', "set http_token_file as well"),
        ('data = "d"\nhttp = "[::]:80"\n', "set http_token_file as well"),
        ('data = "d"\nlog_format = "xml"\n', "log_format: must be auto, human or json (it is 'xml', in /"),
        ("data = \n", "is not a TOML file"),
        (
            'data = "d"\nstaging_bytes = 100000\nstaging_bytes_max = 199999\n',
            "staging_bytes_max: 199999 is less than twice staging_bytes (100000): make it 200000 or more",
        ),
        ('data = "d"\nstaging_bytes = 1000000000\n', "make it 2000000000 or more"),
    ],
)
def test_a_mistake_is_named_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings({}, config_file(tmp_path, text))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_config_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the config file"):
        load_settings({}, tmp_path / "none.toml")


def test_a_config_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "tidegate.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not a TOML file"):
        load_settings({}, path)


BOUNDED = ("slice_width_ms", "staging_bytes", "prefetch_ms", "storage_retry_ms")


@pytest.mark.parametrize("name", BOUNDED)
def test_what_the_index_could_not_take_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: must be a whole number from"):
        load_settings({"data": Path("d"), name: 99_999_999_999_999_999})


@pytest.mark.parametrize("at", ["least", "most"])
def test_the_index_takes_every_setting_that_is_allowed(at: str) -> None:
    values = {}
    for name in BOUNDED:
        with pytest.raises(ConfigError) as refused:
            load_settings({"data": Path("d"), name: -1})
        least, most = (int(number) for number in re.findall(r"from (\d+) to (\d+)", str(refused.value))[0])
        values[name] = least if at == "least" else most
    settings = load_settings({"data": Path("d"), "staging_bytes_max": 1 << 60, **values})
    options = index_options(settings)
    assert (options.slice_width_ms, options.slice_width_auto) == (values["slice_width_ms"], False)
    assert options.staging_budget_bytes == values["staging_bytes"]
    assert options.prefetch_ms == values["prefetch_ms"]
    assert options.retry_ms == values["storage_retry_ms"]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("heartbeat_ms", "200", 200),
        ("commit_interval_ms", "0.5", 0.5),
        ("slice_width_auto", "yes", True),
        ("slice_width_auto", "False", False),
        ("http_token_file", "a/b", Path("a/b")),
        ("log_level", "debug", "debug"),
        ("forget_days", "0", 0.0),
    ],
)
def test_a_variable_is_read_as_what_its_setting_is(
    name: str, text: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"TIDEGATE_{name.upper()}", text)
    assert getattr(load_settings({"data": Path("d")}), name) == value
    monkeypatch.setenv(f"TIDEGATE_{name.upper()}", "")
    assert getattr(load_settings({"data": Path("d")}), name) == getattr(Settings(data=Path("d")), name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("heartbeat_ms", "1e3"),
        ("heartbeat_ms", 100.5),
        ("heartbeat_ms", True),
        ("commit_interval_ms", "nan"),
        ("commit_interval_ms", float("inf")),
        ("commit_interval_ms", False),
        ("shutdown_seconds", 0),
        ("slice_width_auto", "maybe"),
        ("slice_width_auto", 1),
        ("data", 5),
        ("data", ""),
        ("socket", ""),
        ("data", "a\0b"),
        ("log_level", ["info"]),
        ("http_hosts", 5),
    ],
)
def test_what_a_setting_cannot_be_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: must be "):
        load_settings({"data": Path("d"), name: value})


def test_a_misspelt_name_in_a_file_is_located_and_corrected(tmp_path: Path) -> None:
    file = tmp_path / "tidegate.toml"
    file.write_text('data = "d"\nhartbeat_ms = 100\ncolour = "red"\n', encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_settings({}, file)
    assert str(refused.value) == (
        f"hartbeat_ms is not a setting (in {file}), is it heartbeat_ms?; colour is not a setting (in {file})"
    )


def test_a_wrong_value_is_located(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = config_file(
        tmp_path, 'data = "d"\nheartbeat_ms = 1\ncommit_entries = 0\ncommit_interval_ms = -1\n'
    )
    monkeypatch.setenv("TIDEGATE_COMMIT_ENTRIES", "-2")
    with pytest.raises(ConfigError) as refused:
        load_settings({"commit_interval_ms": -3}, file)
    found = re.findall(r"(\w+): must[^(]* \(it is ([^)]*)\)", str(refused.value))
    assert dict(found) == {
        "heartbeat_ms": f"'1', in {file}",
        "commit_entries": "'-2', in TIDEGATE_COMMIT_ENTRIES",
        "commit_interval_ms": "'-3'",
    }


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings({"heartbeat_ms": 1, "commit_entries": 0, "colour": "red"})
    for said in (
        "colour is not a setting",
        "data is not set",
        "heartbeat_ms: must",
        "commit_entries: must be 1 or",
    ):
        assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:80", "127.0.0.1", 80, True),
        ("[::1]:0", "::1", 0, True),
        ("10.0.0.1:9", "10.0.0.1", 9, False),
    ],
)
def test_http_addresses(text: str, host: str, port: int, loopback: bool) -> None:
    address = HttpAddress.parse(text)
    assert (address.host, address.port, address.is_loopback, str(address)) == (host, port, loopback, text)


def test_tokens_are_read_from_private_files_only(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(ConfigError, match="cannot read"):
        read_token(path)
    path.write_text(" secret \n", "utf-8")
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_token(path)
    path.chmod(0o600)
    assert read_token(path) == "secret"
    path.write_text("\n", "utf-8")
    with pytest.raises(ConfigError, match="is empty"):
        read_token(path)
    path.write_text("two\nlines", "utf-8")
    with pytest.raises(ConfigError, match="one line of printable ASCII"):
        read_token(path)
    path.write_text("x" * 70_000, "utf-8")
    with pytest.raises(ConfigError, match="longer than 65,536 bytes"):
        read_token(path)


@pytest.mark.parametrize("content", ["a=" + "[" * 5_000 + "]" * 5_000, "a=" + "9" * 5_000, "#" * 2_000_000])
def test_a_config_file_that_would_take_too_much(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tidegate.toml"
    path.write_text(content, "utf-8")
    with pytest.raises(ConfigError, match="is not a TOML file"):
        load_settings({"data": tmp_path}, path)


def test_a_token_file_allows_an_address_off_loopback(tmp_path: Path) -> None:
    settings = load_settings({"data": tmp_path, "http": "0.0.0.0:80", "http_token_file": tmp_path / "token"})
    assert settings.http_address is not None
    assert not settings.http_address.is_loopback


def test_nothing_else_of_the_daemon_reads_the_environment() -> None:
    here = Path(settings_module.__file__)
    readers = {
        path for path in here.parent.glob("*.py") if re.search(r"\bos\.(environb?|getenv)", path.read_text())
    }
    assert readers == {here}


def test_variables_that_are_no_settings_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_ZONE", "eu")
    assert "TIDEGATE_ZONE" in unknown_variables()
