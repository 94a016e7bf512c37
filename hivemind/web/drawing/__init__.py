"""Drawings as SVG, the same for the page and for commands: a graph, a timeline, a budget, a line of activity."""
