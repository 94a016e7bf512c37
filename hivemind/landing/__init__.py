"""Landing: finished branches of tasks come into the branches of people, one at a time, checked as a whole."""
