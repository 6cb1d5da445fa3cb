"""Rules (cron, every, rrule, at) to dates: local time, calendars, occurrences; and time as people write it."""
