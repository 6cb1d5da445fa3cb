"""Two zones of release 2025b of the tz database, for tests of its change."""

IANA_VERSION = "2025b"
__version__ = "2025.2"
