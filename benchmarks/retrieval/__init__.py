"""How well the store finds what answers a question: LoCoMo's conversations, no model asked (see README.md)."""
