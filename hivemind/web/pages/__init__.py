"""The pages. For each page, a function makes a template's name and context from the site and the query."""
