from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.client import ROOT
from support.waiting import wait_until

from bench.contenders import BARE, HTTP, STDIO, all_contenders
from bench.document import BEGIN, END, rewrite
from bench.figures import Latency, Report, Target, percentile
from bench.plan import QUICK
from bench.programs import PROGRAMS, Outcome, Program
from bench.run import run
from bench.tables import number, table
from bench.targets import ratio, targets_of

PRINT = PROGRAMS[0]


def latency(p50_ms: float) -> Latency:
    return Latency(p50_ms=p50_ms, p90_ms=p50_ms, p99_ms=p50_ms, samples=1)


def report(**tables: object) -> Report:
    return Report(machine={}, contenders={STDIO: "ours", BARE: "bare"}, **tables)  # type: ignore[arg-type]


def test_a_percentile_is_a_sample() -> None:
    samples = [float(number) for number in range(100, 0, -1)]
    assert [percentile(samples, share) for share in (0.5, 0.9, 0.99, 1)] == [50, 90, 99, 100]
    assert percentile([3.0], 0.5) == 3


def test_latency_is_in_milliseconds() -> None:
    assert Latency.of([0.001, 0.002, 0.003]) == Latency(p50_ms=2, p90_ms=3, p99_ms=3, samples=3)


def test_a_ratio_needs_both() -> None:
    both = report(latency={"print": {STDIO: latency(5), BARE: latency(20)}, "numpy": {STDIO: latency(5)}})
    assert ratio(both, "print", STDIO) == 0.25
    assert ratio(both, "numpy", STDIO) is None
    assert ratio(both, "pandas", STDIO) is None


def test_targets_are_those_with_figures_and_more_can_be_better() -> None:
    found = targets_of(
        report(
            latency={"print": {STDIO: latency(5), BARE: latency(20)}},
            throughput={"pandas": {STDIO: {4: 30.0}, BARE: {4: 4.0}}},
        )
    )
    assert [(target.actual, target.reached) for target in found] == [(0.25, True), (7.5, False)]
    assert Target(name="", wanted=8, actual=8, at_least=True).reached


@pytest.mark.parametrize(
    ("value", "text"), [(12345.6, "12,346"), (99.96, "100.0"), (12.34, "12.3"), (1.234, "1.23"), (0.0512, "0.051")]
)
def test_numbers_have_three_digits_or_so(value: float, text: str) -> None:
    assert number(value) == text


def test_a_table_is_aligned_and_its_cells_cannot_break_it() -> None:
    lines = table(["a", "b"], [["x|y\nz", "1"]]).splitlines()
    assert lines == ["| a      | b |", "|--------|---|", "| x\\|y z | 1 |"]


def test_a_wrong_outcome_is_told() -> None:
    right = Outcome(stdout="42\n", stderr="", exit_code=0)
    assert PRINT.complaint(right) is None
    for wrong in (
        Outcome(stdout="43\n", stderr="", exit_code=0),
        Outcome(stdout="42\n", stderr="Killed", exit_code=137),
    ):
        assert PRINT.complaint(wrong)


def test_only_what_is_between_the_markers_is_rewritten(tmp_path: Path) -> None:
    document, picture = tmp_path / "speed.md", tmp_path / "bench.png"
    document.write_text(f"before\n{BEGIN}old{END}\nafter\n")
    picture.write_bytes(b"png")
    rewrite(document, "new\n", picture)
    text = document.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"new\n{END}\nafter\n")
    assert "(speed.png)" in text
    assert "old" not in text
    assert (tmp_path / "speed.png").read_bytes() == b"png"
    document.write_text("no markers")
    with pytest.raises(ValueError, match="must be in it"):
        rewrite(document, "new", picture)
    assert document.read_text() == "no markers"


def test_an_unknown_name_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'bear' is none of"):
        run(tmp_path, QUICK, only=["bear"])
    assert not list(tmp_path.iterdir())


def bench(folder: Path, *options: str) -> tuple[str, dict[str, Any]]:
    """What a short run in a process of its own printed and saved: it adopts and reaps orphans, which are others' here."""
    brief = ["--quick", "--programs", "print", "--rounds", "2", "--pause", "0"]
    command = [sys.executable, "-m", "bench", "--output", str(folder), *brief, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done
    return done.stdout, json.loads((folder / "bench.json").read_text())


def test_a_rival_that_does_not_start_is_named_with_the_reason(tmp_path: Path) -> None:
    printed, saved = bench(tmp_path, "--only", "rival,bare", "--rival", "sh -c 'echo no licence >&2; exit 1'")
    assert "no licence" in saved["absent"]["rival 1"]
    assert "no licence" in printed


def test_a_whole_run_has_every_table_and_right_results(tmp_path: Path) -> None:
    printed, saved = bench(tmp_path, "--only", "mcp-exec,bare", "--endurance", "10")
    assert not saved["wrong"]
    assert not saved["absent"]
    measured = {STDIO, HTTP, BARE, "bare -B"}
    assert set(saved["latency"]["print"]) == set(saved["cpu_s"]["print"]) == measured
    assert {one["samples"] for one in saved["latency"]["print"].values()} == {2}
    assert all(set(rates) == {"1", "4"} and min(rates.values()) > 0 for rates in saved["throughput"]["print"].values())
    assert STDIO in (saved["memory"] if os.geteuid() == 0 else saved["cannot"]["memory"])
    assert set(saved["startup_s"]) == {STDIO, "SDK minimum"}
    assert saved["endurance"]["runs"] == 10
    assert saved["targets"]
    assert all(f"### {title}" in printed for title in ("Targets", "Latency", "Throughput", "Endurance"))
    assert (tmp_path / "bench.png").stat().st_size > 1000


def test_all_processor_time_of_a_run_is_counted(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.3:\n    pass\n"
    (server,) = (one for one in all_contenders(tmp_path) if one.name == STDIO)
    with server.open() as session:
        before = session.cpu_s()
        session.run_checked(Program(name="burn", code=burn, stdout=""))
        wait_until(lambda: session.cpu_s() - before > 0.28)
