"""Looking after a server from outside, over HTTP: `busway map`, `fault`, `rules`, `capture`."""
