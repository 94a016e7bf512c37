"""The hive to look at: one snapshot for the browser's pages and the terminal's, their drawings, and what a person does there."""
