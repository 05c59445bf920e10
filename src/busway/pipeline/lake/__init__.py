"""The lake: Delta tables in folders, what they hold, and how rows come into them once."""
