"""SVG drawings for pages and commands: graph, timeline, budget and sparkline."""
