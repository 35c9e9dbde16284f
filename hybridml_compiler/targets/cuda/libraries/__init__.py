"""NVIDIA's libraries, and CuPy's way to them: where they are, and what they compute."""
