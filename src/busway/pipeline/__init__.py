"""The data pipeline on Apache Spark, through PySpark (P-47).

It reads what a broker's journal serves over HTTP and never touches a broker's memory or files; the
broker imports nothing of it. What it needs is the extra `pipeline`; `busway pipeline doctor` tells
what is there and what is missing.
"""
