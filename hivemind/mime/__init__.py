"""Header fields and contents of messages: for mail, and for documents that are letters."""
