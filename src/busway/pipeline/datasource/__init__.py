"""The data source `busway`: `format("busway")` to read journals and to write messages."""
