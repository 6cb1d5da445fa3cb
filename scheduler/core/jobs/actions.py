"""What people do to jobs: the actions, the states each of them works on, and how jobs are picked for one.

The rules themselves are in SQL, in ``sched.action_outcome``; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from scheduler.core.models import FINAL_STATUSES, JobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """``works_on``: the states in which it does something; ``usual``: those a filter means that names none.

    ``done`` are the outcomes that say so; any other is the unchanged state of the job.
    """

    works_on: tuple[JobStatus, ...]
    usual: tuple[JobStatus, ...]
    done: frozenset[str]


_UNSTARTED = (JobStatus.SCHEDULED, JobStatus.WAITING, JobStatus.PENDING)
_UNFINISHED = (*_UNSTARTED, JobStatus.RUNNING, JobStatus.HELD)
_ENDED = (JobStatus.SUCCEEDED, JobStatus.DEAD, JobStatus.CANCELLED)

ACTIONS: Mapping[str, Action] = {
    "retry": Action(
        works_on=(JobStatus.DEAD, JobStatus.CANCELLED, JobStatus.HELD),
        usual=(JobStatus.DEAD,),
        done=frozenset({"retried"}),
    ),
    "replay": Action(works_on=_ENDED, usual=_ENDED, done=frozenset({"replayed"})),
    "hold": Action(works_on=_UNSTARTED, usual=_UNSTARTED, done=frozenset({"held"})),
    "release": Action(works_on=(JobStatus.HELD,), usual=(JobStatus.HELD,), done=frozenset({"released"})),
    "cancel": Action(works_on=_UNFINISHED, usual=_UNFINISHED, done=frozenset({"cancelled", "asked"})),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSelection:
    """Which jobs an action is for; None lets everything pass. A schedule is found by its former names too.

    ``since`` and ``until`` say when a job ended: ``[since, until)``; jobs that have not ended are in no such range.
    ``error`` is a part of its last error, as it is written there. ``limit`` takes the oldest so many.
    """

    statuses: tuple[JobStatus, ...]
    queue: str | None = None
    job_type: str | None = None
    schedule: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    error: str | None = None
    limit: int | None = None

    def fault(self) -> str | None:
        """Why no job can be meant, as a sentence; None if one can."""
        unended = [status.value for status in self.statuses if status not in FINAL_STATUSES]
        if unended and (self.since or self.until):
            return f"--since and --until say when jobs ended; {unended[0]} ones have not"
        if self.since and self.until and self.since >= self.until:
            return "the range is empty: --until must be later than --since"
        return None
