"""Somebody's own cluster: a test topic of it, and whatever kills its owner lets us ask for.

Nothing is started here and nothing is killed by us: a hook of the user's does that (systemctl, kubectl).
Invariants: only the test topic and our own subscription on it are touched; a hook that says it has done its
work is not believed before it has been seen from outside.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tidegate.plugin.drill.fault import FaultError, Need, Part, State
from tidegate.plugin.drill.stands.admin import StandAdmin, topic_path
from tidegate.plugin.errors import UserError

OWN = "own"
_HOOK_TIMEOUT_S = 300.0
_SEEN_TIMEOUT_S = 30.0
_POLL_S = 0.1
_CONNECTED = re.compile(r"^pulsar_delayed_tidegate_connected\{([^}]*)\}\s+([0-9.]+)", re.MULTILINE)
_WORDS_MAX = 200


@dataclass(frozen=True)
class Own:
    """What the user says of the cluster. ``on_kill``: a command, called with what to do and to what.

    ``token``: what clients and admin requests authenticate with; it is written nowhere.
    """

    service_url: str
    admin_url: str | None
    topic: str
    on_kill: str | None
    token: str | None = field(default=None, repr=False)


class OwnStand:
    """The user's cluster."""

    name = "cluster of your own"
    tracker = OWN

    def __init__(self, own: Own, work_dir: Path, *, pause: Callable[[float], None]) -> None:
        self._own = own
        self._pause = pause
        self._log_path = work_dir / "hook.log"
        self.token = own.token
        self._admin = StandAdmin(lambda: own.admin_url or "", own.token)

    @property
    def offers(self) -> frozenset[Need]:
        """What can be done here."""
        offered: set[Need] = set()
        if self._own.admin_url is not None:
            offered |= {Need.ADMIN, Need.MOVE}
            if self._own.on_kill is not None:
                offered |= {Need.BROKER, Need.DAEMON}
        return frozenset(offered)

    @property
    def lacking(self) -> dict[Need, str]:
        """Why something cannot."""
        here = self.offers
        why = {need: "only the test topic is touched there" for need in Need if need not in here}
        if self._own.admin_url is None:
            return why | dict.fromkeys((Need.ADMIN, Need.MOVE, Need.BROKER, Need.DAEMON), "give --admin-url")
        if self._own.on_kill is None:
            why |= dict.fromkeys((Need.BROKER, Need.DAEMON), "give --on-kill, a command that does it")
        return why

    def start(self) -> None:
        """See that it answers."""
        if self._own.admin_url is not None and not self._healthy():
            raise UserError(f"no healthy broker answers on {self._own.admin_url}: correct --admin-url")

    def end(self) -> None:
        """Nothing was started."""
        self._admin.close()

    def part(self, name: str) -> Part:
        """``broker`` or ``daemon``, by the hook."""
        if name not in {"broker", "daemon"} or self._own.on_kill is None:
            raise FaultError(f"nothing can be done to the {name} there")
        return HookPart(name, self, self._own.on_kill, self._log_path, self._pause)

    def move(self, topic: str) -> str:
        """Unload the topic: its cluster says who is to have it."""
        before = self._admin.owner(topic)
        self._admin.must("PUT", f"/{topic_path(topic)}/unload")
        return f"unloaded from {before}, now at {self._admin.owner(topic)}"

    def rewind(self, topic: str, subscription: str) -> None:
        """By the admin interface."""
        self._admin.rewind(topic, subscription)

    def data_dir(self) -> Path:
        """Not ours."""
        raise FaultError("the data directory of that daemon is not touched")

    def status(self) -> dict[str, Any] | None:
        """Not asked."""
        return None

    def set_clock(self, name: str, ahead_s: float) -> None:
        """Not ours."""
        raise FaultError(f"the clock of the {name} is not set {ahead_s:+g} s there")

    def clock_ahead_s(self, name: str) -> float | None:  # noqa: ARG002
        """Not asked."""
        return None

    def fill_disk(self, *, full: bool) -> int:
        """Not ours."""
        raise FaultError(f"the disk of that daemon is not {'filled' if full else 'freed'}")

    def topic(self, drill: str, number: int) -> str:  # noqa: ARG002
        """The one that the user has named; each round has a subscription of its own."""
        return self._own.topic

    def client_url(self, topic: str) -> str:  # noqa: ARG002
        """What the user has named."""
        return self._own.service_url

    def wait_usable(self, topic: str) -> None:
        """Return when somebody has the topic."""
        if self._own.admin_url is None:
            return
        deadline_s = time.monotonic() + _SEEN_TIMEOUT_S
        while self._admin.owner(topic) is None:
            if time.monotonic() > deadline_s:
                raise UserError(f"no broker had {topic} within {_SEEN_TIMEOUT_S:.0f} s")
            self._pause(_POLL_S)

    def delayed(self, topic: str, subscription: str) -> int | None:
        """As the broker counts them."""
        return None if self._own.admin_url is None else self._admin.delayed(topic, subscription)

    def entries_read(self, topic: str) -> dict[str, int] | None:  # noqa: ARG002
        """Not known."""
        return None

    def release(self, topic: str, subscription: str) -> None:
        """Delete our subscription, so that what is due tomorrow does not stay there for nobody."""
        if self._own.admin_url is not None:
            path = f"/{topic_path(topic)}/subscription/{quote(subscription, safe='')}?force=true"
            self._admin.request("DELETE", path)

    # What a hook has done, seen from outside

    def away(self, name: str, since_ms: int) -> bool:
        """Whether the broker of the topic, or its connection to the daemon, is or was gone since then."""
        if name == "daemon":
            return self._daemon_connected() is False
        return not self._healthy() or self._reconnected(since_ms)

    def there(self, name: str) -> bool:
        """Whether it can be used."""
        if name == "daemon":
            return self._daemon_connected() is not False
        return self._healthy() and self._admin.owner(self._own.topic) is not None

    def _healthy(self) -> bool:
        answer = self._admin.request("GET", "/brokers/health")
        return answer is not None and answer.text.strip() == "ok"

    def _reconnected(self, since_ms: int) -> bool:
        """Whether every consumer of the topic has connected since then: a broker came in between."""
        answer = self._admin.request("GET", f"/{topic_path(self._own.topic)}/stats")
        if answer is None or not answer.is_success:
            return True
        connected = [
            consumer["connectedSince"]
            for subscription in answer.json()["subscriptions"].values()
            for consumer in subscription["consumers"]
        ]
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since_ms / 1000))
        return bool(connected) and all(one[: len(moment)] > moment for one in connected)

    def _daemon_connected(self) -> bool | None:
        """As the shim says in the broker's metrics; None if it says nothing of the topic."""
        text = self._admin.text("/metrics/")
        mine = f'topic="{self._own.topic}'
        found = [float(value) for labels, value in _CONNECTED.findall(text or "") if mine in labels]
        return min(found) > 0 if found else None


class HookPart:
    """A process that the user's hook does things to: ``HOOK kill broker``."""

    def __init__(
        self, name: str, stand: OwnStand, command: str, log_path: Path, pause: Callable[[float], None]
    ) -> None:
        self.name = name
        self._stand = stand
        self._command = shlex.split(command)
        self._log_path = log_path
        self._pause = pause
        self._state = State.RUNNING

    def kill(self) -> None:
        """Ask for it, and see it."""
        self._take_away("kill", State.GONE)

    def stop(self) -> None:
        """Ask for it, and see it."""
        self._take_away("stop", State.GONE)

    def pause(self) -> None:
        """Ask for it, and see it."""
        self._take_away("pause", State.PAUSED)

    def start(self) -> None:
        """Ask for it, and see it."""
        self._bring_back("start")

    def resume(self) -> None:
        """Ask for it, and see it."""
        self._bring_back("resume")

    def state(self) -> State:
        """What was seen last."""
        return self._state

    def _take_away(self, what: str, state: State) -> None:
        since_ms = int(time.time() * 1000)
        self._call(what)
        self._until(lambda: self._stand.away(self.name, since_ms), f"{what} it, and it was never seen away")
        self._state = state

    def _bring_back(self, what: str) -> None:
        self._call(what)
        self._until(lambda: self._stand.there(self.name), f"{what} it, and it was not seen again")
        self._state = State.RUNNING

    def _call(self, what: str) -> None:
        try:
            done = subprocess.run(  # noqa: S603
                [*self._command, what, self.name],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_HOOK_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FaultError(f"the hook could not be run to {what} the {self.name}: {error}") from error
        with self._log_path.open("a", encoding="utf-8") as log:
            log.write(f"{what} {self.name}: {done.returncode}\n{done.stdout}{done.stderr}")
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split())[-_WORDS_MAX:]
            told = f"the hook was to {what} the {self.name} and ended with {done.returncode}"
            raise FaultError(f"{told}: {said}")

    def _until(self, seen: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + _SEEN_TIMEOUT_S
        while not seen():
            if time.monotonic() > deadline_s:
                raise FaultError(f"the hook was to {what}: the fault was not done")
            self._pause(_POLL_S)
