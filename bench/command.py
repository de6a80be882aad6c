"""``python -m bench``: list, run, plot and report the benches."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench import registry
from bench.drills import cells
from bench.drills import run as drill_rounds
from bench.drills import table as drill_table
from bench.harness import baseline, driver, report, results
from bench.harness.errors import BenchError
from bench.harness.machine import ROOT
from bench.harness.parts import PULSAR_VERSION
from bench.plots import picture
from tidegate.plugin.commands.running import leave_at_once
from tidegate.plugin.errors import UserError
from tidegate.plugin.shared.durations import milliseconds

app = typer.Typer(
    help=__doc__,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# A table needs its width; without a terminal long lines do no harm.
console = Console(log_path=False, width=None if sys.stdout.isatty() else 160)


@app.command("list")
def list_benches() -> None:
    """Name every bench: what it measures and how long it takes."""
    table = Table("name", "measures", "beside", "takes", "--quick")
    for bench in registry.BENCHES.values():
        others = ", ".join(peer for peer in bench.peers if peer != "tidegate") or "–"
        table.add_row(bench.name, bench.measures, others, bench.takes, bench.takes_quick)
    console.print(table)


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="a name that `list` shows")],
    quick: Annotated[bool, typer.Option("--quick", help="smaller, to see that it works")] = False,
    json: Annotated[Path | None, typer.Option(help="write the result to this file")] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="rounds; the bench's own number by default")] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="these peers alone (may be given several times)")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="a CSV or NPY file of delays that takes the place of the seeded workloads"),
    ] = None,
    entries: Annotated[
        list[int] | None,
        typer.Option(min=1, help="in the place of the bench's own sizes (may be given several times)"),
    ] = None,
) -> None:
    """Run one bench and print its tables: ratios, then minimum / median / maximum of the rounds."""
    result = _run(name, quick=quick, runs=runs, only=only or [], trace=trace, entries=entries or [])
    if json is not None:
        results.save(result, json)
        console.print(f"written: {json}")


@app.command("all")
def run_all(
    quick: Annotated[bool, typer.Option("--quick", help="smaller, to see that it works")] = False,
    runs: Annotated[
        int | None, typer.Option(min=1, help="rounds; each bench's own number by default")
    ] = None,
    out: Annotated[Path, typer.Option(help="folder for the results and plots")] = results.RESULTS,
) -> None:
    """Run every bench in turn, write NAME.json and draw its plots; a failure does not stop it."""
    failed = []
    for name in registry.BENCHES:
        try:
            result = _run(name, quick=quick, runs=runs, only=[])
        except (BenchError, UserError) as error:
            console.print(f"{name} failed: {error}", style="red", markup=False)
            failed.append(name)
            continue
        results.save(result, out / f"{name}.json")
        picture.draw(baseline.load_beside(out / f"{name}.json"), out / f"{name}.json")
    if failed:
        raise BenchError(f"these benches failed, see above: {', '.join(failed)}")


@app.command("drills")
def run_drills(
    names: Annotated[list[str] | None, typer.Argument(help="drills; all by default")] = None,
    for_: Annotated[str, typer.Option("--for", help="for how long, about; as in 40m")] = "40m",
    rounds: Annotated[int, typer.Option(min=1, help="until there are so many of each")] = 20,
    compare: Annotated[
        str, typer.Option(help="other trackers: in-memory, bucket, no-index-log")
    ] = "in-memory,bucket,no-index-log",
    fresh: Annotated[bool, typer.Option("--fresh", help="forget the rounds that the file has")] = False,
    file: Annotated[
        Path | None, typer.Option(help="where the rounds are added [default: the file of the Pulsar in use]")
    ] = None,
    add: Annotated[
        list[Path] | None,
        typer.Option(
            help="run nothing, add the rounds of such a file, or of what `drill run --json` has written"
        ),
    ] = None,
    beside: Annotated[bool, typer.Option("--beside", help="at low priority, beside other work")] = False,
) -> None:
    """Add rounds of drills to bench/results/drills while there is time; again adds more.

    Drills with the fewest rounds come first. The file has every finished round, whatever ends it.
    """
    pairs = drill_rounds.wanted(names or [], [one for one in compare.split(",") if one])
    file = file or cells.file_of(PULSAR_VERSION)
    if fresh:
        file.unlink(missing_ok=True)
    if add:
        drill_rounds.add_files(add, file)
        return
    try:
        for_s = milliseconds(for_) / 1000
    except ValueError as error:
        raise BenchError(f"--for: {error}") from error
    if beside:
        drill_rounds.lower_priority()
    # One for each file: several can run side by side.
    out_dir = ROOT / "run" / f"bench-{file.stem}"
    interrupted = drill_rounds.run(
        pairs, path=file, out_dir=out_dir, rounds_max=rounds, for_s=for_s,
        say=lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True),
    )  # fmt: skip
    done = cells.told(cells.load(file), pairs, rounds)
    console.print(f"{done}; {file}, `python -m bench report` shows it", soft_wrap=True)
    # Not the ordinary exit: a thread may still be inside the client's library, which would abort.
    leave_at_once(130 if interrupted else 0)


def _run(
    name: str,
    *,
    quick: bool,
    runs: int | None,
    only: list[str],
    trace: Path | None = None,
    entries: Sequence[int] = (),
) -> results.Result:
    result = driver.run(
        registry.find(name),
        quick=quick,
        runs=runs,
        only=only,
        console=console,
        command=shlex.join(["python", "-m", "bench", *sys.argv[1:]]),
        trace=trace,
        entries=entries,
    )
    for table in report.tables(result):
        console.print(table)
    for note in result.notes:
        console.print(f"- {note}", highlight=False, markup=False)
    console.print(report.describe(result), highlight=False)
    return result


@app.command("plot")
def plot_results(
    files: Annotated[
        list[Path] | None, typer.Argument(help="results; all of bench/results by default")
    ] = None,
) -> None:
    """Draw the picture of each result, and of the one it is compared with, beside it."""
    all_files = sorted(results.RESULTS.glob("*.json"))
    for path in files or [path for path in all_files if not baseline.is_before(path)]:
        console.print(f"drawn: {picture.draw(baseline.load_beside(path), path)}")


@app.command("report")
def write_report() -> None:
    """Write the tables of bench/results into its README.md, that of drills, and the README."""
    paths = [path for path in sorted(results.RESULTS.glob("*.json")) if not baseline.is_before(path)]
    order = list(registry.BENCHES)
    loaded = sorted(
        ((baseline.load_beside(path), path) for path in paths),
        key=lambda pair: (order.index(pair[0].bench), pair[1].stem),
    )
    pictures = {
        path.stem: picture.path_of(path).name for _, path in loaded if picture.path_of(path).is_file()
    }
    page = results.RESULTS / "README.md"
    report.write_page(page, {path.stem: result for result, path in loaded}, pictures)
    console.print(f"written: {page.relative_to(ROOT)} from {len(loaded)} results")
    _write_drills()


def _write_drills() -> None:
    for page, (text, count) in drill_rounds.pages().items():
        before = page.read_text(encoding="utf-8")
        after = report.replace_between(before, drill_table.BEGIN, drill_table.END, text)
        page.write_text(after, encoding="utf-8")
        console.print(f"written: {page.relative_to(ROOT)} from {count:,} rounds of drills")


def main() -> None:
    """Run the command; a user's mistake or a missing part is one line and exit code 1."""
    # Only a kill -9 of the bench itself leaves servers and folders behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        app()
    except (BenchError, UserError) as error:
        Console(stderr=True).print(f"bench: {error}", style="red", highlight=False, markup=False)
        sys.exit(1)


if __name__ == "__main__":
    main()
