"""Runs ``run: {http: ...}``: one request, bounded in time and size, to addresses that are allowed.

The job's key travels as ``Idempotency-Key``, so that a server can make the effect once. Redirects are not followed:
they are answers like any other, and fail the attempt. Names are resolved here, every address is checked, and the
connection goes to the address that was checked: private, loopback, link-local and other special ones are refused,
unless SCHED_HTTP_ALLOW names the host or a network that holds them. Proxies of the environment are ignored.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import SplitResult, urlsplit

from scheduler.handlers import Job, Retry
from scheduler.services.executors import Execution, WorkFailed

ALLOW_VARIABLE = "SCHED_HTTP_ALLOW"
DEFAULT_TIMEOUT = timedelta(minutes=1)
BODY_LIMIT = 64 * 1024
ERROR_BODY_LIMIT = 1000
LONGEST_RETRY_AFTER = timedelta(days=1)
_PORTS = {"http": 80, "https": 443}
_BUSY_STATUSES = (429, 503)
_ALSO_SPECIAL = [
    ipaddress.ip_network(text)
    for text in ("192.0.0.0/24", "192.88.99.0/24", "64:ff9b:1::/48", "2001::/23", "5f00::/16")
]
"""Special by the IANA registries, but global to the ``ipaddress`` of older Pythons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back; the body is cut at ``BODY_LIMIT``."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool


class HttpRunner:
    """Runs http jobs; ``environment`` is the worker's own, for ``from_env`` values and the list of what is allowed."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def run(self, job: Job) -> dict[str, Any]:
        """Send the request. Returns status and body; raises for answers other than 2xx, and Retry where told when."""
        settings = _settings(job.run)
        execution = job.control
        assert isinstance(execution, Execution)
        url = _split(self._resolved(settings["url"]))
        body, content_type = _body(settings.get("body"))
        headers = _headers(
            job, content_type, {k: self._resolved(v) for k, v in (settings.get("headers") or {}).items()}
        )
        method = settings.get("method") or ("GET" if body is None else "POST")
        deadline = time.monotonic() + (job.timeout or DEFAULT_TIMEOUT).total_seconds()
        try:
            answer = self._send(execution, url, method, headers, body, deadline)
        except (OSError, http.client.HTTPException) as error:
            raise WorkFailed(f"{method} {_shown(url)}: {type(error).__name__}: {error}") from error
        job.metadata["http_status"] = answer.status
        if answer.status == 429:
            job.metadata["rate_limited"] = True
        if not 200 <= answer.status < 300:
            _refuse(method, url, answer)
        return {"status": answer.status, "body": _readable(answer)}

    def _send(
        self,
        execution: Execution,
        url: SplitResult,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None,
        deadline: float,
    ) -> Answer:
        connection = _connected(url, self._addresses(url), deadline)
        # Ends a read in this thread from another one: at a cancel, a lost lease, a stop.
        execution.stop = lambda: connection.sock and connection.sock.shutdown(socket.SHUT_RDWR)
        try:
            target = (url.path or "/") + (f"?{url.query}" if url.query else "")
            connection.request(method, target, body=body, headers=dict(headers))
            _limit(connection, deadline)
            response = connection.getresponse()
            received = bytearray()
            while len(received) <= BODY_LIMIT and (part := response.read1(16 * 1024)):
                received += part
                _limit(connection, deadline)
            return Answer(
                status=response.status,
                headers={name.lower(): value for name, value in response.getheaders()},
                body=bytes(received[:BODY_LIMIT]),
                is_cut=len(received) > BODY_LIMIT,
            )
        finally:
            execution.stop = None
            connection.close()

    def _addresses(self, url: SplitResult) -> list[str]:
        """The addresses of the host that may be used. Raises WorkFailed when one of them is refused."""
        host = url.hostname or ""
        allowed = [entry.strip() for entry in self._environment.get(ALLOW_VARIABLE, "").split(",") if entry.strip()]
        found = socket.getaddrinfo(host, _port(url), type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        for address in addresses:
            if host not in allowed and not is_allowed(address, allowed):
                raise WorkFailed(
                    f"{host} is at {address}, an address that is not public; to allow it, set "
                    f"{ALLOW_VARIABLE}={host} for the worker, or name its network like 10.1.0.0/16"
                )
        return addresses

    def _resolved(self, value: Any) -> str:
        if not isinstance(value, dict):
            return str(value)
        name = value["from_env"]
        if name not in self._environment:
            raise WorkFailed(f'the environment variable {name}, named by "from_env", is not set in the worker')
        return self._environment[name]


def is_allowed(address: str, allowed: Sequence[str] = ()) -> bool:
    """Whether an address is public, or in one of the allowed networks. IPv4 inside IPv6 counts as what it is."""
    ip = ipaddress.ip_address(address.split("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None) or _nat64(ip) or ip
    for entry in allowed:
        try:
            network = ipaddress.ip_network(entry, strict=False)
        except ValueError:  # a host name
            continue
        if ip.version == network.version and ip in network:
            return True
    is_special = any(ip.version == network.version and ip in network for network in _ALSO_SPECIAL)
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or is_special)


def _nat64(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    is_translated = ip in ipaddress.IPv6Network("64:ff9b::/96")
    return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if is_translated else None


def _settings(run: Any) -> Mapping[str, Any]:
    settings = run.get("http") if isinstance(run, dict) else None
    if isinstance(settings, str) or (isinstance(settings, dict) and set(settings) == {"from_env"}):
        settings = {"url": settings}
    if not isinstance(settings, dict) or not settings.get("url"):
        raise WorkFailed("the job has no address: its `run` must be {http: <address>}, or {http: {url: ...}}")
    return settings


def _split(text: str) -> SplitResult:
    try:
        url = urlsplit(text)
        is_usable = url.scheme in _PORTS and bool(url.hostname) and url.username is None and _port(url) > 0
    except ValueError:
        is_usable = False
    if not is_usable or any(not character.isprintable() or character == " " for character in text):
        raise WorkFailed("the address is not one of http:// or https:// and a host, without a user in it")
    return url


def _port(url: SplitResult) -> int:
    return url.port or _PORTS[url.scheme]


def _shown(url: SplitResult) -> str:
    """Scheme, host and path: a query may hold secrets."""
    return f"{url.scheme}://{url.netloc}{url.path}"


def _body(value: Any) -> tuple[bytes | None, str | None]:
    if value is None:
        return None, None
    if isinstance(value, str):
        return value.encode(), "text/plain; charset=utf-8"
    return json.dumps(value, ensure_ascii=False).encode(), "application/json"


def _headers(job: Job, content_type: str | None, asked: Mapping[str, str]) -> dict[str, str]:
    usual = {"User-Agent": "sched", "Accept": "*/*", "Connection": "close", "Idempotency-Key": job.idempotency_key}
    if content_type:
        usual["Content-Type"] = content_type
    names = {name.lower() for name in asked}
    kept = {name: value for name, value in usual.items() if value is not None and name.lower() not in names}
    for name, value in {**kept, **asked}.items():
        if any(ord(character) < 32 for character in value):
            raise WorkFailed(f"the value of the header {name} has a line break or another control character")
    # Characters outside Latin-1 travel as UTF-8, which is what servers expect today.
    return {name: value.encode().decode("latin-1") for name, value in {**kept, **asked}.items()}


def _connected(url: SplitResult, addresses: Sequence[str], deadline: float) -> http.client.HTTPConnection:
    """A connection to the first address that answers; the name is still what TLS and the server see."""
    failure: OSError = OSError("the name has no address")
    for address in addresses:
        try:
            plain = socket.create_connection((address, _port(url)), timeout=_left(deadline))
        except OSError as error:
            failure = error
            continue
        connection = http.client.HTTPConnection(url.hostname or "", _port(url))
        if url.scheme == "https":
            try:
                connection.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=url.hostname)
            except OSError:
                plain.close()
                raise
            connection.default_port = _PORTS["https"]
        else:
            connection.sock = plain
        return connection
    raise failure


def _limit(connection: http.client.HTTPConnection, deadline: float) -> None:
    if connection.sock is not None:
        connection.sock.settimeout(_left(deadline))


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("took too long")
    return left


def _refuse(method: str, url: SplitResult, answer: Answer) -> None:
    body = answer.body.decode("utf-8", "replace")[:ERROR_BODY_LIMIT]
    note = " (redirects are not followed)" if 300 <= answer.status < 400 else ""
    text = f"{method} {_shown(url)}: status {answer.status}{note}\n{body}".rstrip()
    if answer.status in _BUSY_STATUSES and (after := _retry_after(answer.headers.get("retry-after"))) is not None:
        raise Retry(text, after=after)
    raise WorkFailed(text)


def _retry_after(value: str | None) -> timedelta | None:
    """RFC 9110: a number of seconds, or a date."""
    if value is None:
        return None
    try:
        wait = (
            timedelta(seconds=int(value))
            if value.strip().isdigit()
            else parsedate_to_datetime(value) - datetime.now(UTC)
        )
    except (ValueError, TypeError, OverflowError):
        return None
    return max(timedelta(0), min(wait, LONGEST_RETRY_AFTER))


def _readable(answer: Answer) -> Any:
    text = answer.body.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    if not answer.is_cut and "json" in answer.headers.get("content-type", ""):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
