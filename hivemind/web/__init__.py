"""The hive in a browser and on a terminal: one snapshot for both, the pages, their drawings, and a person's actions."""
