"""What a user asks for: capture, curate, export, replay, migrate."""
