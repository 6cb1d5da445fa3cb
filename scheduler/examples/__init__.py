"""Handlers of the example schedules in ``schedules/``: start a worker with ``--app scheduler.examples.documents``."""
