"""A pipeline command inside an application started by spark-submit: the job is this very process."""

from __future__ import annotations

import sys
from typing import Any

import typer

from tidegate.pipeline.job.request import ErrorEvent, NoteEvent, Request, ResultEvent, StageEvent
from tidegate.plugin.errors import UserError
from tidegate.plugin.shared.shown import one_line, without_passwords


def run_here(request: Request, view: Any) -> tuple[dict[str, Any], int]:
    """As ``launch``, but in this process. Raises ``JobError``."""
    from tidegate.pipeline.job.launch import JobError  # noqa: PLC0415
    from tidegate.pipeline.job.runner import run  # noqa: PLC0415

    ended: list[ResultEvent | ErrorEvent] = []
    # spark-submit mixes a program's errors into its output, where a JSON result must stand alone.
    silent = "--json" in sys.argv

    def tell(event: Any) -> None:
        match event:
            case ResultEvent() | ErrorEvent():
                ended.append(event)
            case StageEvent() if not silent:
                view.stage(event)
            case NoteEvent() if not silent:
                view.note(event.text)

    run(request, tell)
    if isinstance(ended[0], ErrorEvent):
        raise JobError(ended[0].message, ended[0].exit_code)
    return ended[0].result, ended[0].exit_code


def main() -> int:
    """Entry point of ``tidegate_submit.py``; returns the exit code."""
    from tidegate.pipeline.commands import common, register_all  # noqa: PLC0415

    common.start_job = run_here
    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    register_all(app)
    click_error: type[Exception] = next(
        one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException"
    )
    try:
        return int(app(prog_name="tidegate", standalone_mode=False) or 0)
    except UserError as error:
        print(f"tidegate: {one_line(without_passwords(str(error)))}", file=sys.stderr)
        return error.exit_code
    except click_error as error:
        print(f"tidegate: {error}", file=sys.stderr)
        return 2
