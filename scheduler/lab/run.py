"""Runs the experiments in a schema of their own and puts their findings together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scheduler.lab.backoff import measure_backoff
from scheduler.lab.claim import measure_claims
from scheduler.lab.conditions import Conditions, read_conditions
from scheduler.lab.findings import Finding
from scheduler.lab.held import measure_held
from scheduler.lab.killed import measure_killed
from scheduler.lab.plan import measure_plans
from scheduler.lab.schema import LabDatabase, lab_schema
from scheduler.lab.settings import LabSettings
from scheduler.storage.database import Database

Say = Callable[[str], None]

EXPERIMENTS: Mapping[str, Callable[[LabDatabase, LabSettings, Say], Finding]] = {
    "claim": measure_claims,
    "held": measure_held,
    "plan": measure_plans,
    "killed": measure_killed,
    "backoff": measure_backoff,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabReport:
    """What a lab found, and under which conditions."""

    conditions: Conditions
    findings: list[Finding]


def run_lab(database: Database, settings: LabSettings, names: Sequence[str], say: Say) -> LabReport:
    """The named experiments, in their own order; ``say`` is told how far it is.

    The schema they use is dropped before this returns or raises, also on KeyboardInterrupt and SystemExit. Raises
    StorageError when the database does not let it have one.
    """
    with lab_schema(database) as lab:
        conditions = read_conditions(lab, settings)
        findings = [measure(lab, settings, say) for name, measure in EXPERIMENTS.items() if name in names]
    return LabReport(conditions=conditions, findings=findings)
