"""Commands that manage a running server: its entities, its messages, and who uses them.

What they do is in `remote/`; here are their words, and how they show what they found. They speak
the service's own protocols, so that they work against a real namespace as well, but for those that
say that they ask Busway's own HTTP interface.
"""
