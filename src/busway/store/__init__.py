"""Messaging stores: durable places with atomic commits (D-3, D-11 to D-13, D-18)."""
