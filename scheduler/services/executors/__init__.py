"""How one claimed job is run: python, shell."""
