"""Which job does a published row or a report describe? Mechanisms and words, never single rows."""
