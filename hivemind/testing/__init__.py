"""Test support for programs that build on hivemind: conformance suites for embedders and minds."""
