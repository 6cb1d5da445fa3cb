"""What tests share: throw-away PostgreSQL clusters, databases cloned from a migrated template, waiting, requiring."""
