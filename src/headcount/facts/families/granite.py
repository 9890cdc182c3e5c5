"""What does a Granite config say? Llama's keys; its multipliers change numbers, not shapes."""

from headcount.facts.families.llama import read

__all__ = ["read"]
