"""The user's own cluster: a test topic of it, and the faults that its owner permits.

We start and kill nothing: the user's hook does (``hook``). Invariants: we touch only the test topic and our
own subscriptions on it; the subscriptions are deleted, as is a topic made by us. ``left`` lists everything
not restored.
"""

from __future__ import annotations

import functools
import itertools
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pulsar

from tidegate.plugin.drill.fault import FaultError, Need, Part, State
from tidegate.plugin.drill.reach import reach
from tidegate.plugin.drill.stands.admin import StandAdmin, broker_of, topic_path
from tidegate.plugin.drill.stands.hook import HookPart
from tidegate.plugin.errors import ConfigError, UserError
from tidegate.plugin.shared.rest import Answer

OWN = "own"
_SEEN_TIMEOUT_S = 30.0
# A busy broker, or one that loads the topic first, is no wrong address.
_OPERATION_TIMEOUT_S = 15
_POLL_S = 0.1
_CONNECTED, _RECONNECTS = (
    re.compile(rf"^pulsar_delayed_tidegate_{name}\{{([^}}]*)\}}\s+([0-9.]+)", re.MULTILINE)
    for name in ("connected", "reconnects")
)


@dataclass(frozen=True)
class Own:
    """The user's description of the cluster. ``on_kill``: a command, called with an action and a part.
    ``token``: for clients and admin requests; never written to a file.
    """

    service_url: str
    admin_url: str | None
    topic: str
    on_kill: str | None
    token: str | None = field(default=None, repr=False)
    key_shared: bool = False


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
        scheme, _, places = own.service_url.partition("://")
        self._places = itertools.cycle([f"{scheme}://{place}" for place in places.split(",")])
        self._is_new = False
        self._parts: dict[str, HookPart] = {}
        self.left: list[str] = []

    @property
    def offers(self) -> frozenset[Need]:
        """The faults possible here."""
        offered: set[Need] = set()
        if self._own.admin_url is not None:
            offered |= {Need.ADMIN, Need.MOVE}
            if self._own.on_kill is not None:
                offered |= {Need.BROKER, Need.DAEMON}
            if self._at_first is not None and self._at_first > 1:
                offered.add(Need.TWO_BROKERS)
        return frozenset(offered)

    @property
    def lacking(self) -> dict[Need, str]:
        """The reasons why others are not."""
        here = self.offers
        why = dict.fromkeys(Need, "only the test topic is touched there")
        why[Need.MACHINES] = (
            "the hook is asked about the topic's broker and its daemon, never about a whole machine"
        )
        if self._own.admin_url is None:
            asking = (Need.ADMIN, Need.MOVE, Need.BROKER, Need.DAEMON, Need.TWO_BROKERS)
            why |= dict.fromkeys(asking, "give --admin-url")
        else:
            why |= dict.fromkeys((Need.BROKER, Need.DAEMON), "give --on-kill, a command that does it")
            why[Need.TWO_BROKERS] = (
                "its admin URL does not list its brokers to us: give the token of somebody who may"
                if self._at_first is None
                else f"its admin URL lists {self._at_first} active broker"
            )
        return {need: reason for need, reason in why.items() if need not in here}

    def start(self) -> None:
        """Check that it answers and lets us in. Raises ``ConfigError``."""
        own = self._own
        try:
            reach(own.service_url)
        except UserError as error:
            raise ConfigError(f"{error}: correct --service-url") from error
        self._check_admin()
        self._check_client()

    def _check_admin(self) -> None:
        own = self._own
        if own.admin_url is None:
            return
        answer = self._admin.lookup(own.topic, _OPERATION_TIMEOUT_S)
        if answer is None:
            raise ConfigError(f"nobody answers on {own.admin_url}: correct --admin-url")
        if answer.status in {401, 403}:
            advice = "give --token-file" if own.token is None else "give the token of somebody who may"
            raise ConfigError(f"{own.admin_url} does not let us use {own.topic}: {advice}")
        if answer.is_error:
            said = _reason(answer)
            raise ConfigError(
                f"{own.admin_url} does not find {own.topic}: {said}; correct --topic or --admin-url"
            )
        if broker_of(answer) is None:
            raise ConfigError(f"what answers on {own.admin_url} is no Pulsar: correct --admin-url")
        stats = self._admin.request("GET", f"/{topic_path(own.topic)}/stats")
        self._is_new = stats is not None and stats.status == HTTPStatus.NOT_FOUND

    def _check_client(self) -> None:
        own = self._own
        client = self._client()
        try:
            partitions = client.get_topic_partitions(own.topic)
        except pulsar.PulsarException as error:
            token = "give --token-file" if own.token is None else "give the token of somebody who may"
            raise ConfigError(
                f"a Pulsar client cannot use {own.topic} at {own.service_url} ({error}): "
                f"correct --service-url or --topic, or {token}"
            ) from error
        finally:
            client.close()
        if partitions != [own.topic]:
            raise ConfigError(f"{own.topic} is partitioned: name one partition as --topic, {partitions[0]}")

    def end(self) -> None:
        """Delete a topic made here; nothing was started."""
        for name, part in self._parts.items():
            if part.state() is not State.RUNNING:
                self.left.append(f"the {name} is {part.state()}: it was not brought back")
        if self._is_new:
            answer = self._admin.delete_unused(self._own.topic)
            if answer is None or (answer.is_error and answer.status != HTTPStatus.NOT_FOUND):
                said = "nobody answers" if answer is None else _reason(answer)
                self.left.append(f"{self._own.topic}, which was not there before: {said}")

    def part(self, name: str) -> Part:
        """``broker`` or ``daemon``, through the hook."""
        if name not in {"broker", "daemon"} or self._own.on_kill is None:
            raise FaultError(f"nothing can be done to the {name} there")
        part = HookPart(name, self, self._own.on_kill, self._log_path, self._pause)
        return self._parts.setdefault(name, part)

    def move(self, topic: str) -> str:
        """Unload the topic alone: its bundle, with other people's topics, stays.

        So the same broker loads it again, unless the cluster moves the bundle just then.
        """
        before = self._admin.owner(topic)
        self._admin.must("PUT", f"/{topic_path(topic)}/unload")
        after = self._admin.owner(topic)
        if before is not None and after == before:
            return f"unloaded, and not moved: its bundle stays at {before}, which loads it again"
        return f"unloaded from {before}, now at {after}"

    def rewind(self, topic: str, subscription: str) -> None:
        """By the admin interface."""
        self._admin.rewind(topic, subscription)

    def data_dir(self) -> Path:
        """Not ours."""
        raise FaultError("the data directory of that daemon is not touched")

    def status(self) -> dict[str, Any] | None:
        """Unused here."""
        return None

    def set_clock(self, name: str, ahead_s: float) -> None:
        """Not ours."""
        raise FaultError(f"the clock of the {name} is not set {ahead_s:+g} s there")

    def clock_ahead_s(self, name: str) -> float | None:  # noqa: ARG002
        """Unused here."""
        return None

    def fill_disk(self, *, full: bool) -> int:
        """Not ours."""
        raise FaultError(f"the disk of that daemon is not {'filled' if full else 'freed'}")

    def detach_all(self) -> str:
        """Not ours."""
        raise FaultError("the brokers there are not detached by a drill")

    def attach(self, name: str) -> str:
        """Not ours."""
        raise FaultError(f"the {name} there is not attached by a drill")

    def choose_pulsar(self, name: str, *, newer: bool) -> None:
        """Not ours."""
        raise FaultError(f"the {name} of that cluster is not {'upgraded' if newer else 'downgraded'}")

    def pulsar_version(self, name: str) -> str | None:  # noqa: ARG002
        """Unused there."""
        return None

    def topic(self, drill: str, number: int) -> str:  # noqa: ARG002
        """The user's topic; each round has a subscription of its own."""
        return self._own.topic

    def client_url(self, topic: str) -> str:  # noqa: ARG002
        """The user's URL; of several addresses each client gets one, in turn.

        A client that knows all of them asks all, and waits too long for a paused broker, which accepts the
        connection and says nothing.
        """
        return next(self._places)

    def wait_usable(self, topic: str) -> None:
        """Return when the topic has an owner."""
        if self._own.admin_url is None:
            return
        deadline_s = time.monotonic() + _SEEN_TIMEOUT_S
        while self._admin.owner(topic) is None:
            if time.monotonic() > deadline_s:
                asked = f"as {self._own.admin_url} tells"
                raise UserError(f"no broker had {topic} within {_SEEN_TIMEOUT_S:.0f} s, {asked}")
            self._pause(_POLL_S)

    def delayed(self, topic: str, subscription: str) -> int | None:
        """The broker's count."""
        return None if self._own.admin_url is None else self._admin.delayed(topic, subscription)

    def entries_read(self, topic: str) -> dict[str, int] | None:  # noqa: ARG002
        """Unknown here."""
        return None

    def release(self, topic: str, subscription: str) -> None:
        """Delete our subscription, so that messages due tomorrow do not stay.

        Also after an interrupt: if a hook has taken the broker away, wait for it here.
        """
        if self._own.admin_url is not None:
            deadline_s = time.monotonic() + _SEEN_TIMEOUT_S
            while self._admin.owner(topic) is None and time.monotonic() < deadline_s:
                time.sleep(_POLL_S)
            path = f"/{topic_path(topic)}/subscription/{quote(subscription, safe='')}?force=true"
            answer = self._admin.request("DELETE", path)
            if answer is not None and (answer.is_success or answer.status == HTTPStatus.NOT_FOUND):
                return
        # Without the admin interface, unsubscribe as a consumer.
        try:
            reach(self._own.service_url)
            self._unsubscribe(topic, subscription)
        except (UserError, pulsar.PulsarException) as error:
            self.left.append(f"the subscription {subscription} of {topic}: {error}")

    def _unsubscribe(self, topic: str, subscription: str) -> None:
        kind = pulsar.ConsumerType.KeyShared if self._own.key_shared else pulsar.ConsumerType.Shared
        client = self._client()
        try:
            client.subscribe(topic, subscription, consumer_type=kind).unsubscribe()
        finally:
            client.close()

    def _client(self) -> pulsar.Client:
        token = self._own.token
        return pulsar.Client(
            self._own.service_url,
            authentication=None if token is None else pulsar.AuthenticationToken(token),
            operation_timeout_seconds=_OPERATION_TIMEOUT_S,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(self._log_path.with_name("client.log"))),
        )

    # ---- effects of a hook, seen from outside

    def trace(self, name: str) -> frozenset[str] | float | None:
        """For the broker the connections of its consumers, for the daemon its number of reconnects.

        None if unavailable. No times: a cluster's clocks and time zones are not ours.
        """
        return self._reconnects() if name == "daemon" else self._connections()

    def away(self, name: str, before: object) -> bool:
        """True if the topic's broker, or its connection to the daemon, is or was gone since ``before``."""
        if name == "daemon":
            now = self._reconnects()
            again = isinstance(before, float) and now is not None and now > before
            return again or self._daemon_connected() is False
        if self._admin.owner(self._own.topic) is None:
            return True
        # A supervisor may restart a killed process before we look: then all connections are new.
        connections = self._connections()
        known = before if isinstance(before, frozenset) else frozenset()
        return connections is None or (bool(known and connections) and known.isdisjoint(connections))

    def there(self, name: str) -> bool:
        """True if it is usable."""
        if name == "daemon":
            return self._daemon_connected() is not False
        if self._admin.owner(self._own.topic) is None:
            return False
        # Another broker may have the topic: their number shows that the missing one is back.
        return self._at_first is None or (self._active() or 0) >= self._at_first

    @functools.cached_property
    def _at_first(self) -> int | None:
        """Active brokers before the first fault; None if hidden from us."""
        return self._active()

    def _active(self) -> int | None:
        answer = self._admin.request("GET", "/brokers")
        if answer is None or not answer.is_success:
            return None
        try:
            listed = answer.json()
        except ValueError:
            return None
        return len(listed) if isinstance(listed, list) else None

    def _connections(self) -> frozenset[str] | None:
        """An identifier for each consumer's connection to the topic; None if unavailable."""
        answer = self._admin.request("GET", f"/{topic_path(self._own.topic)}/stats")
        if answer is None or not answer.is_success:
            return None
        return frozenset(
            f"{name} {consumer.get('address')} {consumer['connectedSince']}"
            for name, subscription in answer.json()["subscriptions"].items()
            for consumer in subscription["consumers"]
        )

    def _daemon_connected(self) -> bool | None:
        """From the shim's metrics in the broker; None if they lack the topic."""
        found = self._figures(_CONNECTED)
        return min(found) > 0 if found else None

    def _reconnects(self) -> float | None:
        """How often the shim lost and regained its daemon; None if its metrics lack the topic."""
        return max(self._figures(_RECONNECTS), default=None)

    def _figures(self, figure: re.Pattern[str]) -> list[float]:
        # From the topic's own broker: others do not know it.
        text = self._admin.text_of_owner(self._own.topic, "/metrics/")
        mine = f'topic="{self._own.topic}"'
        return [float(value) for labels, value in figure.findall(text or "") if mine in labels]


def _reason(answer: Answer) -> str:
    """A refusal's reason, in Pulsar's words if there are any."""
    return f"{answer.status} {answer.reason}"
