"""HTTP: requests to what the gateway knows. Management, messaging, health, and the partitions.

The rooms: `server` takes requests in and hands them to `atom` (management), `rest` (messaging),
`websocket` (AMQP in another coat) or the pages for operators. `targets` reads paths, `calls` asks
for rights, `replies` says what went wrong. All of it is imported at the first request (D-33).
"""
