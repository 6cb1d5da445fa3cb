"""The ``sched`` command: parse, call one service, print, exit code."""
