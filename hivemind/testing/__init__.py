"""Conformance suites for embedders and minds, for the tests of programs that implement them."""
