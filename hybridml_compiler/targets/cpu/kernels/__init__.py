"""Plans of products and convolutions on a CPU: tiles for registers, blocks for caches, algorithms by shape."""
