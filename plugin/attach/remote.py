"""The machines of a cluster's brokers, reached by ssh, or by the user's command.

Invariants: no shell of this machine sees an argument, the other's gets every one quoted; a started command
may end, whatever this process must do meanwhile.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

from tidegate.plugin.attach.way_back import host_of
from tidegate.plugin.errors import AttachError, ConfigError
from tidegate.plugin.shared.shown import one_line

_TIMEOUT_S = 900.0
"""A broker that is stopped hands its topics over first."""
_SAID_MAX = 300
_SAID_BYTES_MAX = 4096
_SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")


@dataclass(frozen=True)
class OverSsh:
    """Each machine has Tidegate, and its broker is a unit of systemd.

    program: ssh and its options; tidegate: the command there; sudo: without a password.
    """

    program: Sequence[str]
    tidegate: str
    home: str
    unit: str
    sudo: bool

    def check(self, broker: str) -> None:
        """Check that the home can be detached, the unit exists, and the user may restart it."""
        self._run(broker, self._root([self.tidegate, "detach", self.home, "--dry-run", "--json"]))
        self._run(broker, ["systemctl", "cat", self.unit])
        if self.sudo:
            self._run(broker, ["sudo", "-n", "-l", *self._restart()])

    def detach(self, broker: str) -> None:
        """Run ``tidegate detach`` there."""
        self._run(broker, self._root([self.tidegate, "detach", self.home, "--json"]))

    def restart(self, broker: str) -> None:
        """Have systemd restart it, even if this process or the connection ends."""
        self._run(broker, self._root(self._restart()))

    def _restart(self) -> list[str]:
        return ["systemctl", "restart", self.unit]

    def _root(self, command: list[str]) -> list[str]:
        return ["sudo", "-n", *command] if self.sudo else command

    def _run(self, broker: str, command: list[str]) -> None:
        _finish([*self.program, *_SSH_OPTIONS, "--", host_of(broker), shlex.join(command)], broker, command)


@dataclass(frozen=True)
class ByHook:
    """``HOOK check|detach|restart HOST:PORT`` does it."""

    hook: Sequence[str]

    def check(self, broker: str) -> None:
        """As ``Machines``."""
        self._run("check", broker)

    def detach(self, broker: str) -> None:
        """As ``Machines``."""
        self._run("detach", broker)

    def restart(self, broker: str) -> None:
        """As ``Machines``."""
        self._run("restart", broker)

    def _run(self, what: str, broker: str) -> None:
        _finish([*self.hook, what, broker], broker, [what])


def words_of(option: str, text: str) -> list[str]:
    """A command line of the user's as words. Raises ``ConfigError``."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{option} has a quotation that is not closed") from error
    if not words:
        raise ConfigError(f"{option} names no command")
    return words


def _finish(command: Sequence[str], broker: str, shown: Sequence[str]) -> None:
    """Run a command to its end. Raises ``AttachError`` with its last line of output."""
    what = " ".join(shown)
    # Files, not pipes: a broker that a hook starts in the background may hold them open for ever.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            # In a session of its own: Ctrl-C is for us.
            done = subprocess.run(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                timeout=_TIMEOUT_S,
                check=False,
                start_new_session=True,
            )
        except OSError as error:
            raise AttachError(f"cannot run {one_line(command[0])}: {error.strerror or error}") from error
        except subprocess.TimeoutExpired as error:
            raise AttachError(f"{broker}: {one_line(what)} has not ended in {_TIMEOUT_S:.0f} s") from error
        if done.returncode:
            said = (_end_of(errors) or _end_of(output)).splitlines()
            line = one_line(said[-1])[:_SAID_MAX] if said else "no word"
            raise AttachError(f"{broker}: {one_line(what)} ended with {done.returncode}: {line}")


def _end_of(file: BinaryIO) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _SAID_BYTES_MAX))
    return file.read(_SAID_BYTES_MAX).decode("utf-8", "replace").strip()
