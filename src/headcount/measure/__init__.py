"""What happened, held against what was planned."""
