"""Plan, run and measure LLM post-training."""
