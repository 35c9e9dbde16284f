"""Capture: operations of a function become nodes of a graph, its branches and loops subgraphs."""
