"""Runs a daemon from its flags: the work of ``tidegate serve``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from tidegate.plugin.daemon.settings import load_settings


def run_daemon(flags: Mapping[str, Path | str | None], config: Path | None) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises ``UserError``."""
    settings = load_settings(flags, config)
    # Only once the settings are valid.
    from tidegate.plugin.daemon.allocator import collect_nothing_yet  # noqa: PLC0415

    collect_nothing_yet()
    from tidegate.plugin.daemon.logs import forward_standard_logging, make_logger  # noqa: PLC0415
    from tidegate.plugin.daemon.serve import serve  # noqa: PLC0415

    log = make_logger(settings.log_format, settings.log_level)
    forward_standard_logging(log)
    asyncio.run(serve(settings, log, os.environ))
