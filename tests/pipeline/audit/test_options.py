"""Records: a file in a format, or a persistent topic, and nothing else that looks like one."""

from __future__ import annotations

import pytest

from tidegate.pipeline.audit.options import Format, Record
from tidegate.pipeline.errors import OptionError


def test_a_persistent_topic_is_read_as_one() -> None:
    assert Record.of("persistent://public/default/orders", None).format is Format.TOPIC


@pytest.mark.parametrize("scheme", ["segment", "topic", "non-persistent"])
@pytest.mark.parametrize("format_name", [None, "csv"])
def test_any_other_topic_is_refused_in_one_line(scheme: str, format_name: str | None) -> None:
    with pytest.raises(OptionError, match="only persistent:// topics can be read"):
        Record.of(f"{scheme}://public/default/orders", format_name)
