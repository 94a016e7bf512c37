"""Who is here: names held, heartbeats, status files, doorbells."""
