"""Spark itself: which Java runs it, how a session is set up, and what is missing."""
