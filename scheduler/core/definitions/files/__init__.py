"""Definition files to definitions, purely: text (``document``), shape (``model``), meaning (``build``)."""
