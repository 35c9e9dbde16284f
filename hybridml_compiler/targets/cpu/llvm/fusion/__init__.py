"""Code of launches that are made of several specs: of a batch's parts in turn, of independent kernels at once, of a
library call with an epilogue."""
