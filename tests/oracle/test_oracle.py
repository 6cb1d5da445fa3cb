"""The product against facts it did not compute: a recorded set of firings, and the walker of this folder."""

from __future__ import annotations

import gzip
import json
import os
import random
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from scheduler.core.time.localtime import local_clock, year_start
from scheduler.core.time.occurrences import firings
from tests.oracle.compare import Walked, all_changes, differences
from tests.oracle.tzif import changes, zones

RECORDED = Path(__file__).with_name("dst_oracle.jsonl.gz")
MINUTE = timedelta(minutes=1)
SAMPLED_ZONES, SAMPLED_CHANGES = 100, 180


def seed() -> int:
    """Fixed, so that a failure repeats; set ORACLE_SEED to look at another sample."""
    number = int(os.environ.get("ORACLE_SEED", "20260329"))
    print(f"ORACLE_SEED={number}")
    return number


def test_every_recorded_firing_is_computed_and_no_other() -> None:
    wrong = []
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            case = json.loads(line)
            start, end = (datetime.fromisoformat(text) for text in case["w"])
            expected = [datetime.fromisoformat(text) for text in case["u"]]
            if list(firings(case["x"], case["z"], start - MINUTE, end - MINUTE)) != expected:
                wrong.append((number, case["z"], case["x"]))
    assert number == 8513
    assert wrong == []


def test_a_sample_of_all_clock_changes_agrees_with_the_walker() -> None:
    chance = random.Random(seed())
    zones_looked_at = chance.sample(zones(), SAMPLED_ZONES)
    sample = chance.sample(all_changes(zones_looked_at), SAMPLED_CHANGES)
    walked: Walked = {}
    assert [difference for change in sample for difference in differences(change, walked)] == []


def test_every_clock_change_in_tzdata_is_found_by_the_product() -> None:
    """Also holds that no two changes are nearer than the distance at which the product looks for them."""
    for zone in random.Random(seed()).sample(zones(), 60):
        minutes = [
            -(-change.at // 60) for change in changes(zone) if year_start(1971) <= change.at // 60 < year_start(2037)
        ]
        found = [stretch.start for stretch in local_clock(zone).changes(year_start(1971), year_start(2037))]
        assert found == minutes, zone


def test_no_two_clock_changes_of_a_zone_are_nearer_than_three_days() -> None:
    """``localtime`` compares offsets three days apart; two changes within that could hide each other."""
    nearest = min((later.at - earlier.at, zone) for zone in zones() for earlier, later in pairwise(changes(zone)))
    assert nearest[0] > 3 * 86_400, nearest
