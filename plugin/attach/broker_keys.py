"""The keys that attach sets in a broker's conf file, and its advice on the others.

Invariant: Pulsar's own keys get no smaller value than they have.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.plugin.attach.record import AttachedSettings
from tidegate.plugin.daemon.homes.object_stores import check_known, checked_url, is_url
from tidegate.plugin.daemon.listener import PATH_BYTES_MAX
from tidegate.plugin.errors import AttachError

TRACKER_KEY = "delayedDeliveryTrackerFactoryClassName"
TRACKER_FACTORY = "tidegate.pulsar.TrackerFactory"
SOCKET_KEY = "tidegateSocket"
HORIZON_KEY = "tidegateHorizonMillis"
ALLOW_UNKNOWN_KEY = "tidegateAllowUnknownVersion"
INDEX_LOG_KEY = "tidegateIndexLog"
NO_INDEX_LOG = "none"
BOOKKEEPER_LOG = "bookkeeper"
AUTO_INDEX_LOG = "auto"
"""In BookKeeper if the conf file is of a cluster's broker, else none."""
_INDEX_LOGS = (AUTO_INDEX_LOG, BOOKKEEPER_LOG, NO_INDEX_LOG)
METADATA_KEYS = ("metadataStoreUrl", "zookeeperServers")
_OF_ONE_BROKER = ("rocksdb:", "memory:")
ACK_RANGES_KEY = "managedLedgerMaxUnackedRangesToPersist"
ACK_RANGES = 1_000_000
ACK_LONG_ARRAY_KEY = "managedLedgerPersistIndividualAckAsLongArray"
_ACK_DEFAULTS = (10_000, "false")
_ACK_DEFAULTS_5 = (200_000, "true")
"""Pulsar's values for the two keys if a conf file lacks them, up to 4.2 and from 5.0 on."""
HORIZON_MS_DEFAULT = 2_000


@dataclass(frozen=True)
class Wanted:
    """The user's wishes; None: as attached before, else the default."""

    socket: Path | None = None
    horizon_ms: int | None = None
    tune_acks: bool | None = None
    allow_unknown_version: bool | None = None
    index_log: str | None = None
    servlet: bool | None = None


def settings_of(wanted: Wanted, before: AttachedSettings | None, default_socket: Path) -> AttachedSettings:
    """The settings to attach with. Raises ``AttachError`` if one is refused."""
    otherwise = before or AttachedSettings(str(default_socket.absolute()), HORIZON_MS_DEFAULT)
    socket = otherwise.socket if wanted.socket is None else str(wanted.socket.absolute())
    if len(os.fsencode(socket)) > PATH_BYTES_MAX:
        raise AttachError(
            f"{socket} is too long for a socket ({PATH_BYTES_MAX} bytes at most): choose another --socket"
        )
    if any(ord(character) < 0x20 for character in socket) or socket != socket.strip():
        raise AttachError(f"{socket!r} has control characters or outer spaces: choose another --socket")
    return AttachedSettings(
        socket,
        otherwise.horizon_ms if wanted.horizon_ms is None else wanted.horizon_ms,
        otherwise.tune_acks if wanted.tune_acks is None else wanted.tune_acks,
        otherwise.allow_unknown_version
        if wanted.allow_unknown_version is None
        else wanted.allow_unknown_version,
        otherwise.index_log if wanted.index_log is None else _index_log(wanted.index_log),
        otherwise.servlet if wanted.servlet is None else wanted.servlet,
    )


def _index_log(wanted: str) -> str:
    if wanted in _INDEX_LOGS:
        return wanted
    try:
        if not is_url(wanted):
            raise ValueError(f"it must be {', '.join(_INDEX_LOGS)}, or a URL such as s3://bucket/folder")
        url = checked_url(wanted)
        check_known(url)
        return url
    except ValueError as error:
        # The value is not repeated: it may contain a password.
        raise AttachError(f"--index-log is refused: {error}") from None


def keys_of(settings: AttachedSettings, values: Mapping[str, str], version: str) -> dict[str, str]:
    """The keys to set in a conf file with these values, of this version of Pulsar."""
    keys = {
        TRACKER_KEY: TRACKER_FACTORY,
        SOCKET_KEY: settings.socket,
        HORIZON_KEY: str(settings.horizon_ms),
    }
    if settings.tune_acks:
        keys |= _ack_keys(values, version, ACK_RANGES)
    if settings.allow_unknown_version:
        keys[ALLOW_UNKNOWN_KEY] = "true"
    index_log = settings.index_log
    if index_log == AUTO_INDEX_LOG:
        index_log = BOOKKEEPER_LOG if _is_of_cluster(values) else NO_INDEX_LOG
    if index_log != NO_INDEX_LOG:
        keys[INDEX_LOG_KEY] = index_log
    return keys


def _is_of_cluster(values: Mapping[str, str]) -> bool:
    """True for one broker of several: its metadata are not in its own files."""
    stores = [values.get(key, "").strip() for key in METADATA_KEYS]
    return any(store and not store.startswith(_OF_ONE_BROKER) for store in stores)


def _ack_defaults(version: str) -> tuple[int, str]:
    major = version.partition(".")[0]
    return _ACK_DEFAULTS_5 if major.isdecimal() and int(major) >= 5 else _ACK_DEFAULTS


def _ack_keys(values: Mapping[str, str], version: str, at_least: int) -> dict[str, str]:
    """The cursor settings that keep ``at_least`` ranges of acknowledgements.

    These are the keys for which ``values``, or the defaults of this version of Pulsar, have less.
    """
    default_ranges, default_long_array = _ack_defaults(version)
    keys = {}
    ranges = values.get(ACK_RANGES_KEY, "").strip() or str(default_ranges)
    if not ranges.isdecimal() or int(ranges) < at_least:
        keys[ACK_RANGES_KEY] = str(at_least)
    if (values.get(ACK_LONG_ARRAY_KEY, "").strip() or default_long_array) != "true":
        keys[ACK_LONG_ARRAY_KEY] = "true"
    return keys


def ack_ranges_max(values: Mapping[str, str], version: str) -> int:
    """The ranges of acknowledgements that a Pulsar of this version stores; 0 if ``values`` name no number."""
    found = values.get(ACK_RANGES_KEY, "").strip() or str(_ack_defaults(version)[0])
    return int(found) if found.isdecimal() else 0


def conf_advice(values: Mapping[str, str], version: str) -> list[str]:
    """Advice on settings that ``attach`` leaves to the user, a line each."""
    advice: list[str] = []
    # Pulsar 5's own defaults suffice; a conf file carried over from 4 has 10,000 instead.
    default_ranges, _ = _ack_defaults(version)
    wanted = default_ranges if default_ranges == _ACK_DEFAULTS_5[0] else ACK_RANGES
    missing = [f"{key}={value}" for key, value in _ack_keys(values, version, wanted).items()]
    if missing:
        advice.append(
            f"set {' and '.join(missing)}, or Pulsar forgets acknowledgements "
            "when many messages are acknowledged out of order (--tune-acks does it)"
        )
    if values.get("delayedDeliveryEnabled", "true").strip() == "false":
        advice.append("delayedDeliveryEnabled is false, so that Pulsar delays nothing")
    return advice
