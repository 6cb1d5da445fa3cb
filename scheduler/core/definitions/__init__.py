"""Definitions: read from files, checked, warned about, compared, and stored as JSON."""
