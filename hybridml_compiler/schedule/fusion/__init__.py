"""Fusion: which nodes become one launch, which values are computed again, and chains of launches per batch."""
