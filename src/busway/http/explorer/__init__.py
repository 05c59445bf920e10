"""`/{entity}/$explorer/...`: what people ask of an entity and its messages, as JSON.

The portal and the command line use it; so may anybody with a token for the entity.
"""
