"""What nodes share: the catalog of namespaces, entities, access rules and stores."""
