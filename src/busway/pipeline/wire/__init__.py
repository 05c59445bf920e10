"""How jobs talk with a broker: its journals over HTTP, its queues over AMQP."""
