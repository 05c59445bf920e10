"""Entities of a namespace, looked after over the service's own management protocol (Atom)."""
