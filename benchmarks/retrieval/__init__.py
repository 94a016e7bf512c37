"""The store's recall of evidence for questions over LoCoMo's conversations, without a model (see README.md)."""
