"""What was said, and what happened."""
