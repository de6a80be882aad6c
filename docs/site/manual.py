"""The manual: a man page for each command, from its own help.

``python docs/site/manual.py DIR`` writes tidegate.1 and tidegate-COMMAND.1 there. Their date is the one of
SOURCE_DATE_EPOCH (seconds since 1970), else today.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from click_man.man import ManPage

sys.path.insert(0, str(Path(__file__).parent))
import reference

_EXAMPLE = re.compile(r"^Examples?:\s*")


def pages() -> Iterator[tuple[str, str]]:
    """(file name, man page) of ``tidegate`` and each command below it."""
    root = reference.command_tree()
    yield from _pages("tidegate", root)


def _pages(path: str, command: Any) -> Iterator[tuple[str, str]]:
    below = sorted(getattr(command, "commands", {}).items())
    yield f"{path.replace(' ', '-')}.1", _page(path, command, below)
    for name, each in below:
        yield from _pages(f"{path} {name}", each)


def _page(path: str, command: Any, below: list[tuple[str, Any]]) -> str:
    context = command.make_context(path, [], resilient_parsing=True, help_option_names=["-h", "--help"])
    page = ManPage(path)
    page.version = importlib.metadata.version("tidegate").partition("+")[0]
    page.short_help = _plain(command.get_short_help_str(limit=200)).rstrip(".")
    page.synopsis = " ".join(command.collect_usage_pieces(context))
    page.description = _plain(command.help or "")
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    page.options = [(name, _plain(help_)) for name, help_ in filter(None, records)]
    text = str(page)
    # ManPage's own section of commands breaks the names of those two levels down.
    text += ".SH COMMANDS\n" if below else ""
    for name, each in below:
        text += f".TP\n.BR {_name(f'{path} {name}')} (1)\n{_plain(each.get_short_help_str(limit=200))}\n"
    if command.epilog:
        example = _plain(_EXAMPLE.sub("", command.epilog.replace("\b", "").strip()))
        text += f".SH EXAMPLES\n.nf\n{example}\n.fi\n"
    above = path.rpartition(" ")[0]
    if above:
        text += f".SH SEE ALSO\n.BR {_name(above)} (1)\n"
    return text


def _name(path: str) -> str:
    """The name of a command's page."""
    return path.replace(" ", r"\-")


def _plain(text: str) -> str:
    """Text that roff takes as text: no escape, no request."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.MULTILINE).strip()


def main() -> None:
    """Write the pages into the folder that the command line names."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("tidegate*.1"):
        stale.unlink()
    for name, text in pages():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
