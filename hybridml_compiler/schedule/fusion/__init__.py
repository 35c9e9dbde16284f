"""Which nodes of a graph become one launch: groups, what is computed again, chains of launches per batch."""
