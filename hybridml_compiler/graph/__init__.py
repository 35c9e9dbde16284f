"""The graph dialect: nodes over whole arrays, with text, verifier, interpreter and rewriting."""
