"""Settings of the daemon: a TOML file, the environment (``TIDEGATE_*``) and flags, in rising priority.

Invariants: a setting has one name everywhere (``socket`` in the file, ``TIDEGATE_SOCKET``, ``--socket``); an
unknown name in the file, a nearly known one in the environment, and a senseless value are refused with one
line that names the setting; nothing else of the daemon reads the environment, except the default socket's
runtime directory (``environment``) and the variables of a client of object stores (``object_stores``), of
OpenTelemetry's exporter (``otlp``: OTEL_…) and of systemd (``supervisor``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from tidegate.plugin.errors import ConfigError
from tidegate.plugin.shared.environment import PREFIX, own_default_socket, unknown
from tidegate.plugin.shared.small_file import TOKEN_MAX_BYTES, read_text
from tidegate.plugin.telemetry.address import HttpAddress

DAY_MS = 86_400_000
WIDTH_MIN_MS, WIDTH_MAX_MS = 1_000, 3_660 * DAY_MS
_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_INT_MAX = (1 << 63) - 1
_NEAR = 0.7
_CONFIG_MAX_BYTES = 1 << 20

Reader = Callable[[object], Any]
"""Reads a setting from a flag, a variable or a file. Raises ValueError with the requirement."""


def _count(least: int, most: int = _INT_MAX) -> Reader:
    def read(value: object) -> int:
        said = (
            f"must be a whole number from {least} to {most}"
            if most < _INT_MAX
            else f"must be {least} or more"
        )
        number = value
        if isinstance(value, str):
            try:
                number = int(value)
            except ValueError:
                raise ValueError(said) from None
        if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
            raise ValueError(said)
        return number

    return read


def _number(least: float, most: float, *, above: bool = False) -> Reader:
    def read(value: object) -> float:
        said = f"must be a number {'above' if above else 'from'} {least:g}" + f", up to {most:g}"
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(said)
        try:
            number = float(value)
        except ValueError:
            raise ValueError(said) from None
        if not least <= number <= most or (above and number == least):  # NaN is in no range
            raise ValueError(said)
        return number

    return read


def _word(*words: str) -> Reader:
    def read(value: object) -> str:
        if value not in words:
            raise ValueError(f"must be {', '.join(words[:-1])} or {words[-1]}")
        return str(value)

    return read


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a text")
    return value


def _path(value: object) -> Path:
    # An empty path would mean the daemon's working directory.
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise ValueError("must be a path")
    return Path(value)


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else ""
    if word not in _YES + _NO:
        raise ValueError("must be true or false")
    return word in _YES


def _address(value: object) -> str:
    text = _text(value)
    HttpAddress.parse(text)
    return text


def _collector(value: object) -> str:
    said = "must be an address as in http://127.0.0.1:4318/v1/metrics, without a user"
    text = _text(value)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(said) from None
    whole = parts.scheme in ("http", "https") and parts.hostname and port != 0
    if not whole or "@" in parts.netloc or not text.isprintable() or " " in text:
        raise ValueError(said)
    return text


def _setting(reader: Reader, default: Any) -> Any:
    return field(default=default, metadata={"reader": reader})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of ``tidegate serve``; ``load_settings`` reads and checks them.

    data: data directory of the index. socket: Unix socket for the broker.
    http: IP:PORT of /metrics, /healthz, /readyz and /status. http_token_file: its bearer token. http_hosts:
        accepted host names beside localhost, with commas.
    credit_max: most credit of one stream.
    metrics_subscriptions: subscriptions with metric series of their own.
    otlp: push metrics to a collector of OpenTelemetry as well. otlp_endpoint: its address.
        otlp_interval_ms: time between two pushes.
    staging_bytes: memory of entries that are not in a slice yet. staging_bytes_max: close to it, frames are
        read no faster than entries are spilled; at it, none.
    prefetch_ms: how long before an entry is due its block is loaded.
    slice_width_ms: of new subscriptions, or their first one. slice_width_auto: the width follows the entries;
        None: unless slice_width_ms is set.
    quarantine_bytes: damaged values kept aside; past it the oldest are deleted.
    forget_days: an index without an open stream for so long is removed; 0: never.
    audit_bytes: of all files of the audit log; past it the oldest lines are deleted; 0: no log.
    """

    data: Path = field(metadata={"reader": _path})
    socket: Path = field(default_factory=own_default_socket, metadata={"reader": _path})
    http: str | None = _setting(_address, None)
    http_token_file: Path | None = field(default=None, metadata={"reader": _path})
    http_hosts: str = _setting(_text, "")
    log_format: Literal["auto", "human", "json"] = _setting(_word("auto", "human", "json"), "auto")
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        _word("debug", "info", "warning", "error"), "info"
    )

    heartbeat_ms: int = _setting(_count(50, 600_000), 2_000)
    commit_interval_ms: float = _setting(_number(0.0, 1_000.0), 2.0)
    commit_entries: int = _setting(_count(1), 10_000)
    maintain_interval_ms: int = _setting(_count(10, 60_000), 100)
    storage_retry_ms: int = _setting(_count(10, 600_000), 1_000)
    credit_max: int = _setting(_count(1), 1_000_000)
    write_buffer_bytes: int = _setting(_count(65_536), 1_048_576)
    shutdown_seconds: float = _setting(_number(0.0, DAY_MS / 1e3, above=True), 5.0)
    metrics_subscriptions: int = _setting(_count(0), 100)
    otlp: bool = _setting(_truth, False)
    otlp_endpoint: str = _setting(_collector, "http://127.0.0.1:4318/v1/metrics")
    otlp_interval_ms: int = _setting(_count(100, DAY_MS), 60_000)

    staging_bytes: int = _setting(_count(65_536, 1 << 40), 32 * 1024 * 1024)
    staging_bytes_max: int = _setting(_count(65_536), 64 * 1024 * 1024)
    prefetch_ms: int = _setting(_count(0, DAY_MS), 10_000)
    slice_width_ms: int = _setting(_count(WIDTH_MIN_MS, WIDTH_MAX_MS), 3_600_000)
    slice_width_auto: bool | None = _setting(_truth, None)
    quarantine_bytes: int = _setting(_count(0, 1 << 40), 64 * 1024 * 1024)
    forget_days: float = _setting(_number(0.0, 3_660.0), 7.0)
    audit_bytes: int = _setting(_count(0, 1 << 40), 16 * 1024 * 1024)

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """The settings that others contradict, by name, and how."""
        # Reading slows down between the two: with too little between them it would stop and go.
        least = 2 * self.staging_bytes
        if self.staging_bytes_max < least:
            yield (
                "staging_bytes_max",
                f"{self.staging_bytes_max} is less than twice staging_bytes ({self.staging_bytes}): make it "
                f"{least} or more, or staging_bytes smaller",
            )
        address = self.http_address
        if address is not None and not address.is_loopback and self.http_token_file is None:
            yield "http", f"{address} can be reached from other machines, set http_token_file as well"

    @property
    def slice_width_is_auto(self) -> bool:
        """True if new subscriptions get an automatic slice width: unless a width was named."""
        return self.slice_width_auto is not False

    @property
    def http_host_names(self) -> list[str]:
        """The names in ``http_hosts``."""
        return [name.strip() for name in self.http_hosts.split(",") if name.strip()]

    @property
    def http_address(self) -> HttpAddress | None:
        """The parsed ``http``."""
        return None if self.http is None else HttpAddress.parse(self.http)


def load_settings(flags: Mapping[str, Any], config_file: Path | None = None) -> Settings:
    """The settings: flags (if not None) override the environment, which overrides ``config_file``.

    Raises ``ConfigError`` with one line for each error.
    """
    readers: dict[str, Reader] = {each.name: each.metadata["reader"] for each in fields(Settings)}
    given = {} if config_file is None else _read_toml(config_file)
    where = dict.fromkeys(given, f", in {config_file}")
    of_environment = _from_environment(readers)
    given |= of_environment
    where |= {name: f", in {PREFIX}{name.upper()}" for name in of_environment}
    by_flags = {name: value for name, value in flags.items() if value is not None}
    given |= by_flags
    where |= dict.fromkeys(by_flags, "")
    wrong = [_unknown(name, readers, config_file) for name in given if name not in readers]
    if "data" not in given:
        wrong.append("data is not set: give --data, TIDEGATE_DATA or data in the config file")
    values = {}
    for name, reader in readers.items():
        if name in given:
            try:
                values[name] = reader(given[name])
            except ValueError as error:
                wrong.append(f"{name}: {error} (it is {str(given[name])!r}{where[name]})")
    if not wrong:
        if "slice_width_ms" in values:  # a named width is not automatic
            values.setdefault("slice_width_auto", False)
        settings = Settings(**values)
        for name, how in settings.contradictions():
            wrong.append(f"{name}: {how}" + (f" ({name}{where[name]})" if where.get(name) else ""))
    if wrong:
        raise ConfigError("; ".join(wrong))
    return settings


def _unknown(name: str, known: Iterable[str], config_file: Path | None) -> str:
    """The line for an unknown name: where it is, and the nearest known one. Flags are known by then."""
    import difflib  # noqa: PLC0415 nobody waits for a daemon that does not start

    near = difflib.get_close_matches(name.lower(), known, 1, _NEAR)
    where = "" if config_file is None else f" (in {config_file})"
    return f"{name} is not a setting{where}" + (f", is it {near[0]}?" if near else "")


def _from_environment(names: Iterable[str]) -> dict[str, str]:
    """The environment's settings that are not empty. Names ignore case, as is usual."""
    said = {name.lower(): value for name, value in os.environ.items() if value}
    found = {name: said.get(f"{PREFIX}{name}".lower()) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def unknown_variables() -> list[str]:
    """The environment variables that begin like a setting but are none, sorted."""
    return unknown(os.environ)


def read_token(path: Path, option: str = "http_token_file") -> str:
    """The bearer token in ``path``. Raises ``ConfigError`` if missing, empty or readable by others."""
    try:
        mode = path.stat().st_mode
        token = read_text(path, TOKEN_MAX_BYTES).strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{option}: cannot read {path}: {_reason(error)}") from error
    if mode & 0o077:
        raise ConfigError(f"{option}: {path} can be read by others, run: chmod 600 {path}")
    if not token:
        raise ConfigError(f"{option}: {path} is empty, put a long random word into it")
    if not (token.isascii() and token.isprintable()):
        raise ConfigError(f"{option}: {path} must hold one line of printable ASCII")
    return token


def _read_toml(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 few have such a file

    try:
        return tomllib.loads(read_text(path, _CONFIG_MAX_BYTES))
    except OSError as error:
        raise ConfigError(
            f"cannot read the config file {path}: {_reason(error)}; correct --config"
        ) from error
    except (ValueError, RecursionError) as error:  # any text that is not TOML, also one nested too deeply
        raise ConfigError(f"{path} is not a TOML file: {error}; correct it, or --config") from error


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
