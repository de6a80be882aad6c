"""The errors of pipeline commands.

Invariant: each is a ``UserError``: one line with the mistake and the remedy, no traceback. Their exit code 2
tells a script a failure from the audit's verdict (1).
"""

from __future__ import annotations

from tidegate.plugin.errors import UserError


class PipelineError(UserError):
    """A job cannot begin or continue."""

    exit_code = 2


class MissingPartError(PipelineError):
    """Java or a Python package is not installed."""


class OptionError(PipelineError):
    """An option is missing, unknown, or has a senseless value."""


class TopicError(PipelineError):
    """A topic is unreadable: the topic, the permission or its data is missing."""


class NoTopicError(TopicError):
    """The topic does not exist."""


class NoSubscriptionError(TopicError):
    """The topic has no such subscription."""


class UnreachableError(TopicError):
    """There is no answer, or the connection broke; another try, or another way, may help."""


class WireError(TopicError):
    """Received bytes violate the protocol, or fail their checksum."""


class TraceError(PipelineError):
    """A trace or a record is empty, unreadable, or has another schema."""
