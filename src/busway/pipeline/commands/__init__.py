"""`busway pipeline ...`: the jobs at the command line."""
