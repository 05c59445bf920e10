"""Spark finds data sources in modules of such a name by itself: no registration is needed."""

from busway.pipeline.source import BuswayDataSource as DefaultSource

__all__ = ["DefaultSource"]
