"""The pages. For each page, a function returns the name and the context of its template, from the site and the query."""
