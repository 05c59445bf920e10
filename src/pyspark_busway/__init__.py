"""Spark finds data sources in modules of such a name by itself: no registration is needed."""

from busway.pipeline.datasource.progress import behind
from busway.pipeline.datasource.source import BuswayDataSource as DefaultSource

__all__ = ["DefaultSource", "behind"]
