"""Jobs: what a new one is made of, what is kept of it, and what people do to it."""
