"""An agent: its cycle, and the parts that the steps of the cycle use."""
