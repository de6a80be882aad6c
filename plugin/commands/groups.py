"""Groups of options: a dataclass stands for several of a command. Typer knows only functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of its dataclass parameters as parameters of its own."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hints[name] for name in signature(command).parameters if is_dataclass(hints[name])}
    flat: list[Parameter] = []
    for each in signature(command).parameters.values():
        asked = signature(groups[each.name]).parameters.values() if each.name in groups else [each]
        of = get_type_hints(groups.get(each.name, command), include_extras=True)
        flat += [one.replace(kind=Parameter.KEYWORD_ONLY, annotation=of[one.name]) for one in asked]

    def run(**given: Any) -> None:
        made = {
            name: group(**{one.name: given.pop(one.name) for one in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = Signature(flat)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in flat}
    return run
