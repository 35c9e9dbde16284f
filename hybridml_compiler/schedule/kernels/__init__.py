"""Planning of products and convolutions: which library kernel computes one, and its blocking."""
