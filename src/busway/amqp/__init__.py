"""AMQP 1.0 without I/O: bytes in, events out; calls in, bytes out."""
