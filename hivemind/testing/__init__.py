"""What programs that build on hivemind test with: twins, crash points and conformance suites."""
