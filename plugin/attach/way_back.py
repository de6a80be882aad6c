"""A running cluster back to Pulsar's own tracker, one broker after the other.

This module chooses the order, checks each broker before and after, and stops at the first fault; a
``Machines`` detaches and restarts. Invariants:

- every machine is checked before any change;
- at most one broker is away, and the next one's turn comes when that one is healthy again;
- conf files change before the restart, so the cluster works at whatever point this ends;
- nothing is remembered: brokers tell their tracker, so the same command again does the rest.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Protocol
from urllib.parse import urlsplit

from tidegate.plugin.attach.broker_keys import TRACKER_FACTORY, TRACKER_KEY
from tidegate.plugin.errors import AttachError, ConfigError, DaemonAwayError, UserError
from tidegate.plugin.shared.rest import Answer, RestClient, RestError
from tidegate.plugin.shared.shown import one_line

WAIT_S = 300.0
_ASK_TIMEOUT_S = 30.0
_POLL_S = 0.5
_SAID_MAX = 200
# Host and port, as brokers name themselves. A host becomes an argument of ssh: none begins with a dash.
_BROKER = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}\Z", re.ASCII)


class Machines(Protocol):
    """The machines of the brokers; every call returns once done, and raises ``UserError`` if it fails."""

    def check(self, broker: str) -> None:
        """Check that the other two calls are possible there; changes nothing."""
        ...

    def detach(self, broker: str) -> None:
        """Change its conf files; they may be detached already."""
        ...

    def restart(self, broker: str) -> None:
        """Restart it in an orderly way."""
        ...


class _IllError(UserError):
    """A broker's web service answers, but cannot serve the request."""


class State(StrEnum):
    """A broker's state."""

    TIDEGATE = "tidegate"
    OTHER = "other tracker"
    AWAY = "no answer"


@dataclass(frozen=True)
class Broker:
    """A broker, as host:port of its web service. tracker: its factory, None without an answer."""

    name: str
    tracker: str | None

    @property
    def state(self) -> State:
        """Its state."""
        if self.tracker is None:
            return State.AWAY
        return State.TIDEGATE if self.tracker == TRACKER_FACTORY else State.OTHER


def check_name(name: str) -> str:
    """The broker's name, if it is one. Raises ``ConfigError``."""
    if not _BROKER.match(name):
        raise ConfigError(
            f"{one_line(name)[:_SAID_MAX]} is no broker: write it as HOST:PORT of its web service"
        )
    return name


def host_of(broker: str) -> str:
    """The host in a broker's name."""
    return broker.rpartition(":")[0].strip("[]")


class ClusterAdmin:
    """Questions to the brokers of the cluster in which ``base`` is the web service of one."""

    def __init__(self, base: str, client: RestClient) -> None:
        self._base = base
        self._client = client

    def brokers(self) -> list[str]:
        """The names of the active brokers. Raises ``UserError``."""
        try:
            answer = self._ask(self._base, "/brokers")
        except RestError as error:
            raise DaemonAwayError(
                f"no answer of a broker at {self._base}: {error}; name one that is up with --admin-url"
            ) from error
        try:
            names = answer.json()
        except ValueError:
            names = None
        if not isinstance(names, list) or not names or not all(isinstance(one, str) for one in names):
            raise UserError(f"{self._base} names no brokers: name them with --broker")
        return sorted(check_name(name) for name in names)

    def look(self, name: str) -> Broker:
        """A broker as it is now. Raises ``UserError`` if it does not tell its tracker."""
        try:
            answer = self._ask(self._url(name), "/brokers/configuration/runtime")
        except (RestError, _IllError):
            return Broker(name, None)
        try:
            settings = answer.json()
        except ValueError:
            settings = None
        tracker = settings.get(TRACKER_KEY) if isinstance(settings, dict) else None
        if not isinstance(tracker, str) or not tracker:
            raise UserError(f"{name} does not tell its {TRACKER_KEY}: is it a broker of Pulsar?")
        return Broker(name, tracker)

    def status(self, name: str) -> Answer:
        """The answer of a broker's servlet about its daemon, a refusal too. Raises ``RestError``."""
        return self._client.request("GET", f"{self._url(name)}/tidegate/v1/status", timeout_s=_ASK_TIMEOUT_S)

    def is_healthy(self, name: str) -> bool:
        """True if the broker's health check, which sends and receives a message, says so."""
        try:
            return self._ask(self._url(name), "/brokers/health").text.strip() == "ok"
        except (RestError, UserError):
            return False

    def _url(self, name: str) -> str:
        """The web service of a broker.

        Brokers name their plain port if they have one; with TLS all are taken to have the port of ``base``.
        """
        parts = urlsplit(self._base)
        if parts.scheme == "https":
            name = f"{name.rpartition(':')[0]}:{parts.port or 443}"
        return f"{parts.scheme}://{name}"

    def _ask(self, base: str, path: str) -> Answer:
        answer = self._client.request("GET", f"{base}/admin/v2{path}", timeout_s=_ASK_TIMEOUT_S)
        if answer.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise ConfigError(
                f"{base} refuses with {answer.status}: give --token-file with the token of a superuser"
            )
        if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:  # its web service starts before the rest of it
            raise _IllError(f"{base} answers {path} with {answer.status}: {answer.reason}")
        if not answer.is_success:
            raise UserError(f"{base} answers {path} with {answer.status}: {answer.reason}")
        return answer


class WayBack:
    """The way of all ``names``, in that order; None for all active brokers.

    say: takes each step as a line; pause: waits, and may raise to end; wait_s: for a restarted broker; count:
    how many are restarted at most, None for all.
    """

    def __init__(
        self,
        admin: ClusterAdmin,
        machines: Machines,
        say: Callable[[str], None],
        pause: Callable[[float], None],
        *,
        wait_s: float = WAIT_S,
        count: int | None = None,
    ) -> None:
        self._admin = admin
        self._machines = machines
        self._say = say
        self._pause = pause
        self._wait_s = wait_s
        self._count = count
        self.brokers: list[Broker] = []
        """The latest look at each; the last ``later`` stay as they are."""
        self.later = 0
        self.restarting: str | None = None
        """The broker that was restarted and not seen healthy since."""

    def check(self, names: Sequence[str] = ()) -> None:
        """Look at the brokers and at their machines; changes nothing. Raises ``UserError``."""
        named = [check_name(one) for one in dict.fromkeys(names)]
        looked = [self._admin.look(name) for name in named or self._admin.brokers()]
        # Those away, or restarted just now, come first: no other may be away meanwhile.
        self.brokers = sorted(looked, key=lambda one: _TURNS[one.state])
        restarts = sum(one.state is not State.OTHER for one in looked)
        self.later = 0 if self._count is None else max(0, restarts - self._count)
        if not named and self.brokers[0].state is State.AWAY:
            raise AttachError(
                f"{self.brokers[0].name} is one of the active brokers, and does not answer: wait until it "
                "does, correct --admin-url, or name all brokers with --broker"
            )
        turns = len(self.brokers) - self.later
        for place, one in enumerate(self.brokers):
            self._pause(0)
            self._machines.check(one.name)
            self._say(f"{one.name}: {_told(one)}; {_TO_DO[one.state] if place < turns else _STAYS}")

    def go(self) -> None:
        """Detach and restart one after the other. Raises ``UserError`` at the first that fails."""
        many = len(self.brokers) - self.later
        for place, one in enumerate(self.brokers[:many]):
            self._pause(0)
            turn = f"{place + 1}/{many} {one.name}"
            self._machines.detach(one.name)
            self._say(f"{turn}: its conf files have nothing of Tidegate")
            # It may have been restarted since.
            now = self._admin.look(one.name)
            if now.state is not State.OTHER:
                self._pause(0)
                begun_s = time.monotonic()
                self.restarting = one.name
                self._machines.restart(one.name)
                now = self._wait(one.name)
                took_s = time.monotonic() - begun_s
                self._say(f"{turn}: healthy {took_s:.0f} s after its restart, with {now.tracker}")
            else:
                # A run before this one may have restarted it just now.
                self.restarting = one.name
                now = self._wait(one.name)
                self._say(f"{turn}: runs {now.tracker} already, and goes on")
            self.restarting = None
            self.brokers[place] = now

    def _wait(self, name: str) -> Broker:
        """The broker, restarted now or before, once it is healthy."""
        deadline_s = time.monotonic() + self._wait_s
        while True:
            now = self._admin.look(name)
            if now.state is State.TIDEGATE and self._admin.is_healthy(name):
                raise AttachError(
                    f"{name} runs Tidegate's tracker after its restart: is the home that was detached the "
                    "one that it starts from? Nothing else was changed"
                )
            if now.state is State.OTHER and self._admin.is_healthy(name):
                return now
            if time.monotonic() > deadline_s:
                raise AttachError(
                    f"{name} is not healthy {self._wait_s:.0f} s after its restart: start it; once it is "
                    "healthy the same command again does the others, which run as before"
                )
            self._pause(_POLL_S)


_TURNS = {State.AWAY: 0, State.OTHER: 1, State.TIDEGATE: 2}
_TO_DO = {
    State.TIDEGATE: "to be detached and restarted",
    State.OTHER: "its conf files are to be looked at, no restart",
    State.AWAY: "its conf files are to be detached, and it is to be started",
}
_STAYS = "stays as it is for now"


def _told(one: Broker) -> str:
    return "no answer" if one.tracker is None else f"runs {one.tracker}"
