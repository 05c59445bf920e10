"""What a lake tells: the life of each message, the figures of a bus, and a page that shows them."""
