"""Numbers in, numbers out: parameters, bytes, FLOPs, seconds, dollars. No torch."""
