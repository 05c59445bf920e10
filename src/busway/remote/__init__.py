"""Looking after a server from outside, over HTTP: `busway map`, `capture`, `fault`, `token`."""
