"""Runs ``run: {sql: ...}``: statements with bound parameters, in one transaction.

On the database of sched the statements and the completion of the job commit together, so that the effect happens
once. With ``dsn_env`` they commit on a connection of their own, and the job is completed afterwards.

Parameters: what ``parameters`` names, and of the job ``job_id, attempt, schedule, logical_date, local_date,
interval_start, interval_end, covers_from, idempotency_key, payload``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any

from scheduler.errors import StorageError
from scheduler.handlers import Job
from scheduler.services.executors import Execution, WorkFailed
from scheduler.storage.database import Database
from scheduler.storage.statement import own_transaction, run_statement


class SqlRunner:
    """Runs SQL jobs; ``environment`` is the worker's own, from which ``dsn_env`` is taken."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def run(self, job: Job) -> dict[str, Any]:
        """Run the text to its end. Returns what the last statement reported."""
        settings = _settings(job.run)
        execution = job.control
        assert isinstance(execution, Execution)
        try:
            return self._run(job, execution, settings)
        except StorageError as error:
            raise WorkFailed(str(error)) from error

    def _run(self, job: Job, execution: Execution, settings: Mapping[str, Any]) -> dict[str, Any]:
        with self._transaction(job, settings.get("dsn_env")) as connection:
            execution.stop = connection.cancel_safe
            try:
                if execution.is_cancelled:
                    raise WorkFailed("it was asked to stop")
                parameters = {**_job_parameters(job), **self._given(settings.get("parameters") or {})}
                result = run_statement(connection, settings["text"], parameters, job.timeout)
            finally:
                execution.stop = None
            job.result = asdict(result)
        return asdict(result)

    def _transaction(self, job: Job, dsn_env: str | None) -> AbstractContextManager[Any]:
        if dsn_env is None:
            return job.transaction()
        return own_transaction(Database(self._from_environment(dsn_env)))

    def _given(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: self._from_environment(value["from_env"])
            if isinstance(value, dict) and set(value) == {"from_env"}
            else value
            for name, value in parameters.items()
        }

    def _from_environment(self, name: str) -> str:
        if name not in self._environment:
            raise WorkFailed(f"the environment variable {name}, named in the job's settings, is not set in the worker")
        return self._environment[name]


def _settings(run: Any) -> Mapping[str, Any]:
    settings = run.get("sql") if isinstance(run, dict) else None
    if isinstance(settings, str):
        settings = {"text": settings}
    if not isinstance(settings, dict) or not isinstance(settings.get("text"), str):
        raise WorkFailed("the job has no SQL: its `run` must be {sql: <text>}")
    return settings


def _job_parameters(job: Job) -> dict[str, Any]:
    return {
        "job_id": job.id,
        "attempt": job.attempt,
        "schedule": job.schedule,
        "logical_date": job.logical_date,
        "local_date": job.local_date,
        "interval_start": job.interval_start,
        "interval_end": job.interval_end,
        "covers_from": job.covers_from,
        "idempotency_key": job.idempotency_key,
        "payload": job.payload,
    }
