"""The pages. Each is a function from the site and the query to a template and its context."""
