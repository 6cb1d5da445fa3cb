"""How large the experiments are: the full lab, whose figures count, and a quick one that shows that it works."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class LabSettings:
    """Sizes of all experiments; numbers of seconds say so in their names. The defaults are the full lab."""

    is_quick: bool = False
    seed: float = 0.42

    claim_workers: tuple[int, ...] = (1, 2, 4, 8, 16)
    claim_jobs: int = 400
    claim_job_seconds: float = 0.2

    held_workers: int = 4
    held_job_seconds: tuple[float, ...] = (0.2, 3.0)
    held_window_seconds: float = 12.0

    plan_pending: int = 500
    plan_finished: int = 500_000
    plan_repeats: int = 5

    killed_jobs: int = 4
    killed_job_seconds: float = 24.0
    killed_lease: timedelta = timedelta(seconds=10)
    killed_after_seconds: float = 6.0

    backoff_jobs: int = 40
    backoff_attempts: int = 6
    backoff_base: timedelta = timedelta(seconds=0.5)
    backoff_max: timedelta = timedelta(seconds=4)
    backoff_jitter: float = 0.2
    backoff_draws: int = 1000

    @classmethod
    def quick(cls) -> Self:
        """Small enough for a test: seconds instead of minutes."""
        return cls(
            is_quick=True,
            claim_workers=(1, 4),
            claim_jobs=40,
            claim_job_seconds=0.03,
            held_job_seconds=(0.05, 0.4),
            held_window_seconds=1.2,
            plan_finished=20_000,
            plan_repeats=3,
            killed_job_seconds=2.5,
            killed_lease=timedelta(seconds=1),
            killed_after_seconds=0.6,
            backoff_jobs=8,
            backoff_attempts=4,
            backoff_base=timedelta(seconds=0.1),
            backoff_max=timedelta(seconds=0.3),
            backoff_draws=200,
        )
