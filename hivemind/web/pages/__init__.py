"""The pages: each a function from the site and the address's query to what its template says."""
