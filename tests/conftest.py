"""Fixtures that every test may use; they are defined in ``tests/support``."""

from __future__ import annotations

import freezegun

pytest_plugins = ["tests.support.database"]

# freezegun also stops the monotonic clock: without this a wait of psycopg, selectors or asyncio never returns.
freezegun.configure(extend_ignore_list=["asyncio", "psycopg", "selectors"])
