"""Answers of a form unknown to this version, as of another version's daemon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.plugin.errors import UserError


@contextmanager
def known_form() -> Iterator[None]:
    """Raise ``UserError`` where the body misses an expected part of an answer."""
    try:
        yield
    except UnicodeError:  # a terminal that cannot show it
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"the daemon answers in a form that this version does not know: {error!r}") from error
