"""Settings of the daemon: a TOML file, the environment (``TIDEGATE_*``) and flags, in rising priority.

Invariants: a setting has one name everywhere (``socket`` in the file, ``TIDEGATE_SOCKET``, ``--socket``); an
unknown name in the file, nearly a known one in the environment, and a value that makes no sense are refused
with one line that names the setting; nothing else of the daemon reads the environment. (Of the tools,
``environment`` says what they read.)
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from tidegate.plugin.environment import own_default_socket
from tidegate.plugin.errors import ConfigError
from tidegate.plugin.telemetry.address import HttpAddress

DAY_MS = 86_400_000
WIDTH_MIN_MS, WIDTH_MAX_MS = 1_000, 3_660 * DAY_MS


class Settings(BaseSettings):
    """All settings of ``tidegate serve``; read them with ``load_settings``."""

    model_config = SettingsConfigDict(
        env_prefix="TIDEGATE_", env_ignore_empty=True, extra="forbid", frozen=True, validate_default=True
    )

    data: Path = Field(description="data directory of the index")
    socket: Path = Field(default_factory=own_default_socket, description="Unix socket for the broker")
    http: str | None = Field(default=None, description="IP:PORT of /metrics, /healthz, /readyz and /status")
    http_token_file: Path | None = Field(
        default=None, description="file with the bearer token of the HTTP side"
    )
    http_hosts: str = Field(
        default="", description="host names, with commas, under which the HTTP side is asked beside localhost"
    )
    log_format: Literal["auto", "human", "json"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    heartbeat_ms: int = Field(default=2_000, ge=50, le=600_000)
    commit_interval_ms: float = Field(default=2.0, ge=0.0, le=1_000.0)
    commit_entries: int = Field(default=10_000, ge=1)
    maintain_interval_ms: int = Field(default=100, ge=10, le=60_000)
    storage_retry_ms: int = Field(default=1_000, ge=10, le=600_000)
    credit_max: int = Field(default=1_000_000, ge=1, description="most credit one stream can hold")
    write_buffer_bytes: int = Field(default=1_048_576, ge=65_536)
    shutdown_seconds: float = Field(default=5.0, gt=0.0)
    metrics_subscriptions: int = Field(
        default=100, ge=0, description="subscriptions that get metric series of their own"
    )

    staging_bytes: int = Field(
        default=32 * 1024 * 1024,
        ge=65_536,
        le=1 << 40,
        description="memory of entries that are not in a slice yet",
    )
    staging_bytes_max: int = Field(
        default=64 * 1024 * 1024,
        ge=65_536,
        description="towards it, frames are read no faster than entries are spilled; at it, none",
    )
    prefetch_ms: int = Field(
        default=10_000,
        ge=0,
        le=DAY_MS,
        description="how long before it is due an entry's block is loaded",
    )
    slice_width_ms: int = Field(
        default=3_600_000,
        ge=WIDTH_MIN_MS,
        le=WIDTH_MAX_MS,
        description="slice width of new subscriptions, or the one to begin with",
    )
    slice_width_auto: bool | None = Field(
        default=None, description="whether it follows what comes; not set: unless slice_width_ms is set"
    )
    quarantine_bytes: int = Field(
        default=64 * 1024 * 1024,
        ge=0,
        le=1 << 40,
        description="damaged values that are kept aside; past it the oldest are deleted",
    )
    forget_days: float = Field(
        default=7.0,
        ge=0.0,
        le=3_660.0,
        description="an index that no stream has had open for so long is removed; 0: never",
    )

    @field_validator("http")
    @classmethod
    def _http_address(cls, value: str | None) -> str | None:
        if value is not None:
            HttpAddress.parse(value)
        return value

    @model_validator(mode="after")
    def _room_to_spill(self) -> Settings:
        # Reading slows down between the two: too close, it would stop and go.
        least = 2 * self.staging_bytes
        if self.staging_bytes_max < least:
            raise ValueError(
                f"staging_bytes_max: {self.staging_bytes_max} is less than twice staging_bytes "
                f"({self.staging_bytes}): make it {least} or more, or staging_bytes smaller"
            )
        return self

    @model_validator(mode="after")
    def _token_for_the_network(self) -> Settings:
        address = self.http_address
        if address is not None and not address.is_loopback and self.http_token_file is None:
            raise ValueError(
                f"http: {address} can be reached from other machines, set http_token_file as well"
            )
        return self

    @property
    def slice_width_is_auto(self) -> bool:
        """Whether the slice width of a new subscription is automatic: who names a width wants that one."""
        if self.slice_width_auto is None:
            return "slice_width_ms" not in self.model_fields_set
        return self.slice_width_auto

    @property
    def http_host_names(self) -> list[str]:
        """The names in ``http_hosts``."""
        return [name.strip() for name in self.http_hosts.split(",") if name.strip()]

    @property
    def http_address(self) -> HttpAddress | None:
        """The parsed ``http``."""
        return None if self.http is None else HttpAddress.parse(self.http)


def load_settings(flags: dict[str, Any], config_file: Path | None = None) -> Settings:
    """The settings from flags (those that are not None), the environment and ``config_file``, the first one
    winning.

    Raises ``ConfigError`` with one line for each thing that is wrong.
    """
    from_file = {} if config_file is None else _read_toml(config_file)

    class Loaded(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, from_file)

    try:
        return Loaded(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        raise ConfigError("; ".join(_explain(one) for one in error.errors())) from error


def read_token(path: Path) -> str:
    """The bearer token in ``path``. Raises ``ConfigError`` if it is missing, empty or readable by others."""
    try:
        mode = path.stat().st_mode
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"http_token_file: cannot read {path}: {_reason(error)}") from error
    if mode & 0o077:
        raise ConfigError(f"http_token_file: {path} can be read by others, run: chmod 600 {path}")
    if not token:
        raise ConfigError(f"http_token_file: {path} is empty, put a long random word into it")
    return token


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"cannot read the config file {path}: {_reason(error)}; correct --config"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}; correct it, or --config") from error


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _explain(error: Any) -> str:
    name = ".".join(str(part) for part in error["loc"])
    match error["type"]:
        case "missing":
            return f"{name} is not set: give --{name}, TIDEGATE_{name.upper()} or {name} in the config file"
        case "extra_forbidden":
            return f"{name} is not a setting"
        case "value_error":
            text = str(error["ctx"]["error"])
            return f"{name}: {text}" if name else text
        case _:
            return f"{name}: {error['msg']} (it is {error['input']!r})"
