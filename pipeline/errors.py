"""Every error that a pipeline command ends with.

Invariant: each is a ``UserError``: one line that says what is wrong and what to do, no traceback. The exit
code is 2, so that a script can tell "could not be judged" from the audit's verdict (1).
"""

from __future__ import annotations

from tidegate.plugin.errors import UserError


class PipelineError(UserError):
    """A job cannot begin or go on."""

    exit_code = 2


class MissingPartError(PipelineError):
    """Java or a Python package is not installed."""


class OptionError(PipelineError):
    """An option is missing, unknown, or has a value that makes no sense."""


class TopicError(PipelineError):
    """A topic cannot be read: it is not there, the permission is missing, or its data is."""


class NoTopicError(TopicError):
    """There is no such topic."""


class NoSubscriptionError(TopicError):
    """The topic has no such subscription."""


class UnreachableError(TopicError):
    """Nobody answers, or the connection broke; another try, or another way, may help."""


class WireError(TopicError):
    """What came over a connection is not what the protocol allows, or fails its checksum."""


class TraceError(PipelineError):
    """A trace or a record is empty, unreadable, or has another schema."""
