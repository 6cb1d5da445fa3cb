"""The ledger: which dates were expected of a schedule, what is missing, and how far ahead it is planned."""
