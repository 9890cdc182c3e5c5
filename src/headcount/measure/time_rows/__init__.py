"""Published rates and times: each row becomes what a model of ours predicts, or is skipped with its reason."""
