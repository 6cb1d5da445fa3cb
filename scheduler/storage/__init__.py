"""The only importers of psycopg: connections, embedded PostgreSQL, migrations, and rows to models."""
