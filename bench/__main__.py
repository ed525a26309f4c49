"""`python -m bench`: measure, print, save."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import click

from bench.document import rewrite
from bench.picture import draw
from bench.plan import FULL, QUICK
from bench.run import run
from bench.tables import tables_of


def _words(_context: click.Context, _parameter: click.Parameter, value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--output", type=click.Path(path_type=Path), default=".bench", help="Folder for results and tools.")
@click.option("--quick", is_flag=True, help="Under two minutes; good for a look, not for a table.")
@click.option("--only", default="", callback=_words, help="Contenders by the beginning of their names: mcp-exec,bare")
@click.option("--programs", default="", callback=_words, help="Programs by the beginning of their names: print,pandas")
@click.option("--rival", "rivals", multiple=True, help="Command of another MCP server over stdio with a tool `exec`.")
@click.option("--rounds", type=click.IntRange(1), help="Of latency, for each program.")
@click.option("--pause", type=click.FloatRange(0), help="Seconds after each run.")
@click.option("--endurance", type=click.IntRange(0), help="Runs one after the other on one server; 0 for none.")
@click.option("--document", type=click.Path(path_type=Path, exists=True), help="Rewrite the tables in this document.")
def main(
    output: Path,
    quick: bool,
    only: list[str],
    programs: list[str],
    rivals: tuple[str, ...],
    rounds: int | None,
    pause: float | None,
    endurance: int | None,
    document: Path | None,
) -> None:
    """Measure mcp-exec beside bare Python and other sandboxes. The exit status is 1 if a result was wrong."""
    asked = {"rounds": rounds, "pause_s": pause, "endurance": endurance}
    plan = replace(QUICK if quick else FULL, **{name: value for name, value in asked.items() if value is not None})  # type: ignore[arg-type] # each has its field's type
    output = output.resolve()
    try:
        report = run(output, plan, only=only, programs=programs, rivals=rivals)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    tables, picture = tables_of(report), output / "bench.png"
    (output / "bench.json").write_text(json.dumps(asdict(report), indent=1))
    draw(report, picture)
    if document is not None:
        rewrite(document, tables, picture)
    click.echo(tables)
    sys.exit(bool(report.wrong))


if __name__ == "__main__":
    main()
