"""``tidegate policy``: rules for the delayed messages of topics and namespaces, kept as Pulsar's properties.

Invariant: only properties that begin with ``tidegate.`` change, and only after a check of the value.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

import typer

from tidegate.plugin.client.calls import base_of
from tidegate.plugin.commands.groups import with_groups
from tidegate.plugin.commands.options import JsonOutput, TlsCaFile, Token, TokenFile, rest_client
from tidegate.plugin.errors import ConfigError, DaemonAwayError, UnknownNameError, UserError
from tidegate.plugin.shared.delay_policies import EVERY, POLICIES, Rule, key_of, rules_of, value_of
from tidegate.plugin.shared.rest import Answer, RestError
from tidegate.plugin.shared.shown import one_line

SCHEMA = 1
_DEFAULT_URL = "http://127.0.0.1:8080"
_PARTITION = re.compile(r"(?<=.)-partition-(?:0|[1-9][0-9]{0,8})\Z", re.ASCII)

_app = typer.Typer(
    help="Show and change rules: levels, a quota, index logs.\n\n"
    "They hold for the delayed messages of a topic or a namespace.\n\n"
    "levels: delays are rounded up to the next of these; rocketmq stands for its 18, 1s to 2h.\n\n"
    "quota: a subscription with more waiting messages is reported.\n\n"
    "index_log: on or off, from when the topic is next loaded.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Place = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC|NAMESPACE",
        help="TENANT/NAMESPACE is a namespace; persistent://public/default/ of a topic may be left out.",
    ),
]
Policy = Annotated[str, typer.Argument(metavar="POLICY", help=f"{' or '.join(POLICIES)}.")]
Subscriptions = Annotated[
    str, typer.Option(metavar="PATTERN", help="Only for subscriptions of fitting names; * is anything.")
]


@dataclass(frozen=True, kw_only=True)
class Broker:
    """The broker to ask, and the form of the answer: a group of ``groups``."""

    context: typer.Context
    admin_url: Annotated[
        str,
        typer.Option(metavar="URL", envvar="TIDEGATE_ADMIN_URL", help="The web service of a broker."),
    ] = _DEFAULT_URL
    token: Token = None
    token_file: TokenFile = None
    tls_ca_file: TlsCaFile = None
    json_output: JsonOutput = False

    def ask(self, method: str, path: str, body: object = None) -> Answer:
        """The broker's answer, refusals included. Raises ``UserError``."""
        base = base_of(self.admin_url)
        client = rest_client(self.context, self.token, self.token_file, self.tls_ca_file)
        try:
            return client.request(method, f"{base}/admin/v2/{path}", body)
        except RestError as error:
            raise DaemonAwayError(f"no answer of a broker at {base}: {error}; correct --admin-url") from error


@dataclass(frozen=True)
class _Owner:
    """A topic or namespace with properties. path: below ``/admin/v2``."""

    kind: str
    name: str
    path: str

    def rules(self, broker: Broker) -> list[Rule]:
        """Raises ``UserError``."""
        answer = _checked(self, broker.ask("GET", f"{self.path}/properties"))
        try:
            document = (answer.json() if answer.body else None) or {}
        except ValueError as error:
            raise UserError(
                f"the answer about {self.name} is not one of Pulsar: correct --admin-url"
            ) from error
        if not isinstance(document, dict):
            raise UserError(f"the answer about {self.name} is not one of Pulsar: correct --admin-url")
        return rules_of({str(key): str(value) for key, value in document.items()})

    def set(self, broker: Broker, key: str, value: str) -> None:
        """Raises ``UserError``."""
        _checked(self, broker.ask("PUT", f"{self.path}/properties", {key: value}))

    def remove(self, broker: Broker, key: str) -> None:
        """Raises ``UserError``."""
        one = quote(key, safe="")
        path = f"properties?key={one}" if self.kind == "topic" else f"property/{one}"
        _checked(self, broker.ask("DELETE", f"{self.path}/{path}"))


def _checked(owner: _Owner, answer: Answer) -> Answer:
    if answer.is_success:
        return answer
    if answer.status == HTTPStatus.NOT_FOUND:
        raise UnknownNameError(f"there is no {owner.kind} {owner.name}")
    if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise UserError(f"the broker refuses that for {owner.name}: give the token of an administrator")
    raise UserError(f"the broker refuses that for {owner.name}: {answer.status} {answer.reason}")


def _owner(text: str) -> _Owner:
    """Raises ``ConfigError``."""
    domain, separator, rest = text.partition("://")
    if not separator:
        domain, rest = "persistent", text if "/" in text else f"public/default/{text}"
    parts = rest.split("/", 2)
    if domain != "persistent" or not all(parts) or len(parts) < 2 or (separator and len(parts) < 3):
        raise ConfigError(
            f"{one_line(text)[:80]} is no topic (persistent://TENANT/NAMESPACE/TOPIC) and no TENANT/NAMESPACE"
        )
    if len(parts) == 2:
        return _namespace(parts)
    # Pulsar keeps a partition's rules under the partitioned topic's name.
    parts[2] = _PARTITION.sub("", parts[2])
    path = "/".join(quote(one, safe="") for one in parts)
    return _Owner("topic", f"persistent://{'/'.join(parts)}", f"persistent/{path}")


def _namespace(parts: list[str]) -> _Owner:
    path = "/".join(quote(one, safe="") for one in parts)
    return _Owner("namespace", "/".join(parts), f"namespaces/{path}")


@_app.command("get", epilog="Example: tidegate policy get orders --admin-url http://broker:8080")
@with_groups
def get(place: Place, *, broker: Broker) -> None:
    """Show the rules of a topic and of its namespace, or of a namespace.

    A topic's beat its namespace's; of fitting patterns in one place the longest counts.
    """
    owner = _owner(place)
    owners = [owner]
    if owner.kind == "topic":
        owners.append(_namespace(owner.name.partition("://")[2].split("/", 2)[:2]))
    shown = [
        _as_json(one, rule.policy, rule.subscriptions, rule.value)
        for one in owners
        for rule in one.rules(broker)
    ]
    _say(shown, broker)


@_app.command("set", epilog="Example: tidegate policy set public/default levels rocketmq")
@with_groups
def set_policy(
    place: Place,
    policy: Policy,
    value: Annotated[
        str,
        typer.Argument(
            metavar="VALUE",
            help="Levels: 1s,10s,1m or rocketmq; a quota: a number; index_log: on or off; none: no rule, "
            "nor the namespace's.",
        ),
    ],
    subscriptions: Subscriptions = EVERY,
    *,
    broker: Broker,
) -> None:
    """Set a rule. Brokers follow within seconds, for messages that they read from then on.

    They follow index_log when they load the topic the next time.
    """
    owner, key = _owner(place), _key(policy, subscriptions)
    try:
        value = value_of(policy, value)
    except ValueError as error:
        raise ConfigError(one_line(str(error))) from error
    # Pulsar 4.0.8 never answers a change of a topic that does not exist.
    owner.rules(broker)
    owner.set(broker, key, value)
    _say([_as_json(owner, policy, subscriptions, value)], broker)


@_app.command("remove", epilog="Example: tidegate policy remove orders quota --subscriptions 'audit-*'")
@with_groups
def remove(place: Place, policy: Policy, subscriptions: Subscriptions = EVERY, *, broker: Broker) -> None:
    """Remove a rule; the namespace's counts again. Exit code 1: there is none."""
    owner, _ = _owner(place), _key(policy, subscriptions)
    found = [one for one in owner.rules(broker) if (one.policy, one.subscriptions) == (policy, subscriptions)]
    if not found:
        raise UserError(
            f"{owner.name} has no {policy} for {subscriptions}: tidegate policy get shows the rules"
        )
    for one in found:
        owner.remove(broker, one.key)
    _say([], broker)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.add_typer(_app, name="policy", epilog="Example: tidegate policy set orders quota 100000")


def _key(policy: str, subscriptions: str) -> str:
    if policy not in POLICIES:
        raise ConfigError(f"a policy is one of {', '.join(POLICIES)}, not {one_line(policy)[:80]}")
    try:
        return key_of(policy, subscriptions)
    except ValueError as error:
        raise ConfigError(one_line(str(error))) from error


def _as_json(owner: _Owner, policy: str, subscriptions: str, value: str) -> dict[str, Any]:
    return {
        "of": owner.kind,
        "name": owner.name,
        "policy": policy,
        "subscriptions": subscriptions,
        "value": value,
    }


def _say(rules: list[dict[str, Any]], broker: Broker) -> None:
    if broker.json_output:
        print(json.dumps({"schema": SCHEMA, "rules": rules}))
        return
    for one in rules:
        kept = "" if one["subscriptions"] == EVERY else f" for {one_line(one['subscriptions'])}"
        print(f"{one_line(one['name'])}: {one['policy']}{kept}: {one_line(one['value'])}")
