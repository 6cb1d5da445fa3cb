"""One operation or loop per file; services own the transaction boundaries and do not import each other."""
