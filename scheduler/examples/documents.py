"""Text statistics of the documents in a folder: the handler behind ``schedules/documents.yaml``."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from scheduler.handlers import Discard, Job, handler

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)")


@handler("documents.statistics")
def extract_statistics(job: Job) -> dict[str, Any]:
    """Statistics of every document below ``payload.folder``, for the day the job stands for.

    The return value becomes the row of ``job_results`` with the job's idempotency key, so that running a day again
    cannot give it a second result.
    """
    folder = Path(str(job.payload["folder"]))
    files = sorted(file for file in folder.glob(str(job.payload.get("pattern", "**/*.md"))) if file.is_file())
    if not files:
        raise Discard(f"no documents in {folder}")
    documents = {file.relative_to(folder).as_posix(): _statistics(file.read_text(encoding="utf-8")) for file in files}
    return {
        "logical_date": job.logical_date.isoformat() if job.logical_date else None,
        "documents": documents,
        "words": sum(document["words"] for document in documents.values()),
    }


def _statistics(text: str) -> dict[str, Any]:
    words = [word.lower() for word in _WORD.findall(text)]
    return {
        "characters": len(text),
        "words": len(words),
        "sentences": len(_SENTENCE_END.findall(text)),
        "longest_word": max(words, key=len, default=""),
        "most_frequent": [word for word, _ in Counter(word for word in words if len(word) > 3).most_common(5)],
    }
