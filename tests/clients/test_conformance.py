"""The official conformance suite: against its fixtures behind our transport code, and against the product itself."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client import ROOT, Identity
from support.http import HttpServer

from clients.install import node, package

SUITE = "@modelcontextprotocol/conformance/dist/index.js"
EXPECTED = tomllib.loads((Path(__file__).parent / "conformance_expected.toml").read_text())["expected"]
REVISIONS = ("2025-11-25", "2026-07-28")
#: What needs no fixture, so that one tool can show it
PRODUCT = {
    "2025-11-25": ("server-initialize", "server-session-lifecycle", "ping", "tools-list", "dns-rebinding-protection"),
    "2026-07-28": ("tools-list", "server-sse-multiple-streams", "http-header-validation", "dns-rebinding-protection"),
}


def suite(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(node()), str(package("conformance", SUITE)), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)


def run(server: HttpServer, revision: str, folder: Path, *which: str) -> subprocess.CompletedProcess[str]:
    url = f"{server.url}/mcp"
    return suite("server", "--url", url, "--spec-version", revision, "--output-dir", str(folder), *which)


@pytest.fixture(scope="module")
def fixtures(clients: None) -> Iterator[HttpServer]:
    command = ("env", f"PYTHONPATH={ROOT / 'tests'}", sys.executable, "-m", "clients.conformance.server")
    with HttpServer(identity=Identity(name="conformance", command=command, python=sys.executable)) as found:
        yield found
        assert found.stop() == 0


@pytest.fixture(scope="module")
def product(clients: None, root_identity: object) -> Iterator[HttpServer]:
    with HttpServer({"MCP_EXEC_PREIMPORT": ""}) as found:
        yield found
        assert found.stop() == 0


def scenarios(revision: str) -> set[str]:
    lines = suite("list", "--server", "--spec-version", revision).stdout.splitlines()
    return {line.split()[1] for line in lines if line.startswith("  - ")}


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_scenario_succeeds_but_for_what_is_listed(fixtures: HttpServer, revision: str, tmp_path: Path) -> None:
    done = run(fixtures, revision, tmp_path, "--suite", "all")
    assert done.returncode == 0, done.stdout[-3000:]
    reports = sorted(tmp_path.glob("server-*/checks.json"))
    missing = {name for name in scenarios(revision) if not list(tmp_path.glob(f"server-{name}-20*/checks.json"))}
    assert (missing, len(reports) >= 33) == (set(), True)
    checks = [check for report in reports for check in json.loads(report.read_text())]
    told = {(check["id"], check["status"]) for check in checks if check["status"] not in ("SUCCESS", "INFO")}
    assert told == {(one["check"], one["status"]) for one in EXPECTED if one["revision"] == revision}


def test_every_expectation_has_a_reason() -> None:
    assert all(one["reason"].strip() and one["revision"] in REVISIONS for one in EXPECTED)


@pytest.mark.parametrize(("revision", "scenario"), [(key, name) for key in PRODUCT for name in PRODUCT[key]])
def test_the_product_conforms_in_what_one_tool_has(
    product: HttpServer, revision: str, scenario: str, tmp_path: Path
) -> None:
    done = run(product, revision, tmp_path, "--scenario", scenario)
    assert done.returncode == 0, done.stdout[-3000:]
    (report,) = tmp_path.glob("server-*/checks.json")
    assert {check["status"] for check in json.loads(report.read_text())} <= {"SUCCESS", "INFO"}


@pytest.mark.parametrize("revision", REVISIONS)
def test_control_the_suite_fails_a_server_without_the_fixture(
    product: HttpServer, revision: str, tmp_path: Path
) -> None:
    assert run(product, revision, tmp_path, "--scenario", "tools-call-simple-text").returncode == 1
