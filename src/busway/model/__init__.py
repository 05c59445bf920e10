"""The product's words: entities, messages, names, limits, errors. Pure, without I/O."""
