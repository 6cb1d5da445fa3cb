"""``run: {http: ...}`` against a real server on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from scheduler.handlers import HandlerRegistry
from scheduler.services.worker import Worker, WorkerSettings
from scheduler.storage.database import Database
from tests.support.working import RunningWorker, attempts_of, enqueue, job_row


class Server(ThreadingHTTPServer):
    """Remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.release = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """Answers by path."""

    server: Server

    def log_message(self, format: str, *arguments: object) -> None:
        return None

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append((self.command, self.path, headers, body))
        match self.path.split("?")[0]:
            case "/json":
                self.answer(200, b'{"a": [1]}', {"Content-Type": "application/json"})
            case "/large":
                self.answer(200, b"x" * 1_000_000)
            case "/moved":
                self.answer(302, b"", {"Location": "/json"})
            case "/broken":
                self.answer(500, b"it broke")
            case "/busy":
                self.answer(429, b"slow down", {"Retry-After": "3600"})
            case "/slow":
                self.server.release.wait(30)
            case _:
                self.answer(200, b"ok")

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.release.set()
        server.shutdown()
        thread.join()


def run(dsn: str, http: Any, environment: dict[str, str] | None = None, **columns: Any) -> dict[str, Any]:
    """Run one http job to its end and return its row."""
    job_id = enqueue(dsn, "run.http", run={"http": http}, **columns)
    settings = WorkerSettings(name="test", lease=timedelta(seconds=5))
    given = {"SCHED_HTTP_ALLOW": "127.0.0.1"} if environment is None else environment
    RunningWorker(Worker(Database(dsn), HandlerRegistry(), settings, given), drain=True).join()
    return job_row(dsn, job_id)


def test_an_address_is_fetched_and_json_is_the_result(database: str, server: Server) -> None:
    row = run(database, f"{server.url}/json?x=1", idempotency_key="k:1")
    assert (row["status"], row["result"]) == ("succeeded", {"status": 200, "body": {"a": [1]}})
    ((method, path, headers, _),) = server.seen
    assert (method, path, headers["idempotency-key"]) == ("GET", "/json?x=1", "k:1")
    assert headers["host"] == server.url.removeprefix("http://")


def test_a_body_is_posted_with_headers_from_the_environment(database: str, server: Server) -> None:
    settings = {"url": server.url, "headers": {"Authorization": {"from_env": "TOKEN"}}, "body": {"é": 1}}
    run(database, settings, {"SCHED_HTTP_ALLOW": "127.0.0.0/8", "TOKEN": "Bearer t"})
    ((method, _, headers, body),) = server.seen
    assert (method, body) == ("POST", '{"é": 1}'.encode())
    assert (headers["authorization"], headers["content-type"]) == ("Bearer t", "application/json")


def test_a_private_address_is_refused_and_never_reached(database: str, server: Server) -> None:
    row = run(database, server.url, {})
    assert "127.0.0.1, an address that is not public" in row["last_error"]
    assert "SCHED_HTTP_ALLOW" in row["last_error"]
    assert server.seen == []


@pytest.mark.parametrize(
    ("path", "outcome", "text"),
    [
        ("/moved", "failed", "status 302 (redirects are not followed)"),
        ("/broken", "failed", "status 500\nit broke"),
        ("/busy", "retried", "status 429\nslow down"),
    ],
)
def test_answers_other_than_success_fail_the_attempt(
    database: str, server: Server, path: str, outcome: str, text: str
) -> None:
    row = run(database, server.url + path + "?secret=1")
    assert text in row["last_error"] and "secret" not in row["last_error"]
    (attempt,) = attempts_of(database, row["id"])
    assert attempt["outcome"] == outcome
    assert attempt["metadata"].get("rate_limited", False) == (path == "/busy")
    if path == "/busy":
        assert row["available_at"] - attempt["ended_at"] > timedelta(minutes=59)


def test_a_large_answer_is_cut(database: str, server: Server) -> None:
    assert len(run(database, f"{server.url}/large")["result"]["body"]) == 64 * 1024


def test_a_server_that_does_not_answer_is_timed_out(database: str, server: Server) -> None:
    row = run(database, f"{server.url}/slow", timeout=timedelta(milliseconds=300))
    assert row["last_error"].startswith(("timed out", "GET"))


@pytest.mark.parametrize(
    "url", ["ftp://x/", "http://", "http://u:p@127.0.0.1/", "http://127.0.0.1:99999/", "http://127.0.0.1/a b", "x\ny"]
)
def test_an_address_that_makes_no_sense_is_a_failed_attempt(database: str, url: str) -> None:
    assert run(database, url)["last_error"].startswith("the address is not one of http://")


def test_a_host_that_does_not_exist_is_a_failed_attempt(database: str) -> None:
    assert run(database, "http://nowhere.invalid/")["last_error"].startswith("GET http://nowhere.invalid/: gaierror")
