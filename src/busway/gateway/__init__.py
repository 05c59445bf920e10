"""Where clients' connections end: links and requests become commands to partitions."""
