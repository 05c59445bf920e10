"""A broker over AMQP, from the client's side: one connection, and what is done over it."""
