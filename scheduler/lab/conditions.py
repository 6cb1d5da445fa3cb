"""Under which conditions the figures came about; every table and chart carries them."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from scheduler import __version__
from scheduler.lab.schema import LabDatabase
from scheduler.lab.settings import LabSettings
from scheduler.lab.statements import rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The server and its settings, the machine that runs the workers, the date and the seed."""

    server_version: str
    server_settings: Mapping[str, str]
    started_at: datetime
    cores: int
    load: float
    python: str
    sched: str
    seed: float
    is_quick: bool

    @property
    def label(self) -> str:
        """All of it in one line."""
        settings = ", ".join(f"{name} {value}" for name, value in sorted(self.server_settings.items()))
        size = "quick run" if self.is_quick else "full run"
        return (
            f"PostgreSQL {self.server_version} ({settings}); {self.cores} cores, load {self.load:.1f}, "
            f"Python {self.python}, sched {self.sched}; {self.started_at:%Y-%m-%d %H:%M} UTC, "
            f"seed {self.seed:g}, {size}"
        )


def read_conditions(database: LabDatabase, settings: LabSettings) -> Conditions:
    """As they are now. Cores and load are those of the machine that runs the lab."""
    with database.connection() as connection:
        ((version, now, server_settings),) = rows(connection, "conditions")
    return Conditions(
        server_version=version.split()[0],
        server_settings=server_settings,
        started_at=now,
        cores=os.cpu_count() or 1,
        load=os.getloadavg()[0],
        python=platform.python_version(),
        sched=__version__,
        seed=settings.seed,
        is_quick=settings.is_quick,
    )
