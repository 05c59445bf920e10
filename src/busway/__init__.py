"""Busway: an open message broker that speaks Azure Service Bus."""

__version__ = "0.1.0"
