"""The benchmark of definition files keeps working; its figures are read by people, not asserted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.benchmark
def test_the_benchmark_of_definitions_runs_and_prints_its_figures() -> None:
    script = Path(__file__).with_name("bench_definitions.py")
    root = script.parents[2]
    done = subprocess.run(
        [sys.executable, str(script), "300"], cwd=root, env={"PYTHONPATH": str(root)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["300", "import", "load", "to", "hash", "compare"]
