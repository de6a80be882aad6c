"""The part of the broker's admin REST interface that reading a topic needs.

Invariants: an answer's size is bounded; each failure is a ``TopicError`` with a remedy; the token goes only
to ``base_url`` and to the topic's owner when an answer redirects there.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit

from tidegate.pipeline.errors import NoTopicError, OptionError, TopicError, UnreachableError, WireError
from tidegate.pipeline.topic.access import Access, check_no_password
from tidegate.pipeline.topic.names import TopicName
from tidegate.plugin.shared.rest import (
    Answer,
    RedirectError,
    RestClient,
    RestError,
    UnansweredError,
    UntrustedError,
    port_of,
)


class Admin:
    """Calls on the cluster that answers at ``base_url``; a context manager."""

    def __init__(self, base_url: str, access: Access) -> None:
        check_no_password("an admin URL", base_url)
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or port_of(base_url) is None:
            raise OptionError(
                f"{base_url[:80]!r} is no admin URL: write http://HOST:8080 or https://HOST:8443"
            )
        self._base_url = base_url.rstrip("/")
        self._client = RestClient(access.token, access.tls() if parts.scheme == "https" else None)

    def __enter__(self) -> Self:
        """Nothing is opened before the first call."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """No connection is left open."""

    def partitions(self, topic: TopicName) -> int:
        """The number of the topic's partitions; 0 without partitions."""
        document = self._get(f"/persistent/{topic.admin_path}/partitions", topic)
        count = document.get("partitions")
        if not isinstance(count, int) or count < 0:
            raise WireError(f"{self._base_url} does not say how many partitions {topic} has")
        return count

    def internal_stats(self, topic: TopicName) -> dict[str, Any]:
        """Ledgers with their ensembles, and cursors. Loads the topic if no broker has it."""
        return self._get(f"/persistent/{topic.admin_path}/internalStats?metadata=true", topic)

    def subscriptions(self, topic: TopicName) -> set[str]:
        """The subscriptions of a topic. Loads it if no broker has it. Raises NoTopicError."""
        found = self._ask(f"/admin/v2/persistent/{topic.admin_path}/subscriptions", topic)
        if not isinstance(found, list):
            raise WireError(f"{self._base_url} does not say which subscriptions {topic} has")
        return {str(one) for one in found}

    def subscription_properties(self, topic: TopicName, subscription: str) -> dict[str, Any]:
        """The cursor's properties; up to Pulsar 4.2 as they were when the topic was loaded."""
        path = f"/persistent/{topic.admin_path}/subscription/{quote(subscription, safe='')}/properties"
        return self._get(path, topic)

    def topics(self, within: TopicName) -> list[TopicName]:
        """All persistent topics, and partitions, of the namespace of ``within``."""
        found = self._ask(f"/admin/v2/persistent/{within.namespace_path}", within)
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise WireError(f"{self._base_url} does not say which topics there are")
        return [TopicName.parse(one) for one in found if one.startswith("persistent://")]

    def service_url(self, topic: TopicName) -> str:
        """The URL for clients of the topic."""
        document = self._asked(f"/lookup/v2/topic/persistent/{topic.admin_path}", topic)
        tls = urlsplit(self._base_url).scheme == "https"
        url = document.get("brokerUrlTls" if tls else "brokerUrl")
        if not isinstance(url, str) or not url:
            raise TopicError(f"{self._base_url} does not say where {topic} is served: give --service-url")
        return url

    def owner(self, topic: TopicName) -> frozenset[str]:
        """HOST:PORT of the topic's owner, with and without TLS."""
        document = self._asked(f"/lookup/v2/topic/persistent/{topic.admin_path}", topic)
        urls = (document.get(name) for name in ("brokerUrl", "brokerUrlTls", "brokerUrlSsl", "nativeUrl"))
        return frozenset(urlsplit(url).netloc for url in urls if isinstance(url, str) and url)

    def _get(self, path: str, topic: TopicName) -> dict[str, Any]:
        return self._asked(f"/admin/v2{path}", topic)

    def _asked(self, path: str, topic: TopicName) -> dict[str, Any]:
        document = self._ask(path, topic)
        if not isinstance(document, dict):
            raise WireError(f"{self._base_url} does not answer as Pulsar's admin API does")
        return document

    def _ask(self, path: str, topic: TopicName) -> Any:
        here = self._base_url
        try:
            answer = self._client.request("GET", f"{here}{path}")
        except UntrustedError as error:
            raise TopicError(
                f"the certificate of {here} is not trusted: {error}; give tls_ca_file"
            ) from error
        except UnansweredError as error:
            raise UnreachableError(f"the admin API at {here} does not answer: {error}") from error
        except RedirectError as error:
            raise UnreachableError(f"{here} {error}") from error
        except RestError as error:
            raise WireError(f"{here} {error}") from error
        return self._checked(answer, topic)

    def _checked(self, answer: Answer, topic: TopicName) -> Any:
        status = answer.status
        if status == 200:
            try:
                return answer.json()
            except ValueError as error:
                raise WireError(
                    f"{self._base_url} does not answer with JSON: is it a Pulsar broker?"
                ) from error
        if status == 401:
            # Pulsar's answer to a missing token, an unknown one, or one without the permission to look it up.
            raise TopicError(
                f"{self._base_url} does not let this token see {topic}, or there is none: "
                "give a token file with one that may"
            )
        if status == 403:
            raise TopicError(f"no permission to see the ledgers of {topic}: ask for it, or use another token")
        if status == 404:
            raise NoTopicError(f"there is no topic {topic}, says {self._base_url}")
        raise UnreachableError(f"{self._base_url} answers {status} for {topic}: {answer.reason}")
