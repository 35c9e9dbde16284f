"""How library kernels compute a product or a convolution: which kernel, and its blocking."""
