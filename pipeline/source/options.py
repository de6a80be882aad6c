"""The options of the data source, checked before anything is read.

service_url           pulsar://HOST:6650 or pulsar+ssl://HOST:6651
admin_url             http://HOST:8080 or https://HOST:8443
topic                 whole, partitioned or one partition
subscription          leaves out what it has acknowledged; without it everything that is stored is read
read_from             auto (default), bookies or broker
entries_per_partition how many entries a Spark partition has, about (250,000)
entries_per_trigger   of a stream: how many entries a batch has at most, about (no limit)
starting              of a stream: earliest (default), or latest
payload               true adds the columns payload, chunk_id and chunks
token_file, tls_ca_file, tls_cert_file, tls_key_file
bookies               ID=HOST:PORT,…: where bookies are whose id is not their address
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.pipeline.errors import OptionError
from tidegate.pipeline.job.parts import BATCHES_HAVE_LIMITS, installed, spark_is_at_least
from tidegate.pipeline.topic.access import Access, check_no_password
from tidegate.pipeline.topic.bookies import parse_address
from tidegate.pipeline.topic.cluster import Cluster, ReadFrom
from tidegate.pipeline.topic.names import TopicName

ENTRIES_PER_PARTITION = 250_000
_KNOWN = (
    "service_url",
    "admin_url",
    "topic",
    "subscription",
    "read_from",
    "entries_per_partition",
    "entries_per_trigger",
    "starting",
    "fail_on_data_loss",
    "payload",
    "token_file",
    "tls_ca_file",
    "tls_cert_file",
    "tls_key_file",
    "bookies",
)
_SECRETS = ("token", "password", "auth_params", "authParams")


@dataclass(frozen=True)
class Options:
    """The options of the data source."""

    cluster: Cluster
    topic: TopicName
    subscription: str | None
    entries_per_partition: int
    entries_per_trigger: int | None
    from_latest: bool
    may_lose: bool
    payloads: bool

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """The checked options. Raises ``OptionError``."""
        options = {name.lower(): value for name, value in given.items()}
        for name in _SECRETS:
            if name.lower() in options:
                raise OptionError(
                    f"{name} would show in Spark's plans: put the token into a file, give token_file"
                )
        unknown = sorted(options.keys() - set(_KNOWN))
        if unknown:
            raise OptionError(f"unknown option {unknown[0]!r}: the options are {', '.join(_KNOWN)}")
        # Here, at loading: PySpark hides the errors of a stream's reader.
        if "entries_per_trigger" in options and not spark_is_at_least(*BATCHES_HAVE_LIMITS):
            raise OptionError(
                f"entries_per_trigger needs PySpark 4.2 or newer, and this is {installed()}: leave it out, "
                "or install a newer one here and on the cluster"
            )
        missing = [name for name in ("service_url", "admin_url", "topic") if not options.get(name)]
        if missing:
            raise OptionError(f"the option {missing[0]} is missing")
        check_no_password("a service URL", options["service_url"])
        check_no_password("an admin URL", options["admin_url"])
        return cls(
            cluster=Cluster(
                options["service_url"],
                options["admin_url"],
                Access(**{name: options.get(name) for name in Access.__dataclass_fields__}),
                _choice(options, "read_from", ReadFrom.AUTO),
                _bookies(options.get("bookies", "")),
            ),
            topic=TopicName.parse(options["topic"]),
            subscription=options.get("subscription"),
            entries_per_partition=_number(options, "entries_per_partition") or ENTRIES_PER_PARTITION,
            entries_per_trigger=_number(options, "entries_per_trigger"),
            from_latest=_among(options, "starting", ("earliest", "latest")) == "latest",
            may_lose=_among(options, "fail_on_data_loss", ("true", "false")) == "false",
            payloads=_among(options, "payload", ("false", "true")) == "true",
        )


def _choice(options: Mapping[str, str], name: str, default: ReadFrom) -> ReadFrom:
    return ReadFrom(_among(options, name, tuple(ReadFrom), default))


def _among(options: Mapping[str, str], name: str, values: tuple[str, ...], default: str = "") -> str:
    value = options.get(name, default or values[0]).lower()
    if value not in values:
        raise OptionError(f"{name}={value[:40]}: it is one of {', '.join(values)}")
    return value


def _number(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    try:
        value = int(options[name])
    except ValueError:
        value = 0
    if value < 1:
        raise OptionError(f"{name}={options[name][:40]}: it is a number, 1 or more")
    return value


def _bookies(text: str) -> dict[str, str]:
    found = {}
    for one in filter(None, (part.strip() for part in text.split(","))):
        name, _, address = one.partition("=")
        parse_address(address)
        found[name] = address
    return found
