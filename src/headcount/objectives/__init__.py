"""The mathematics of post-training: tensors in, tensors out; no models, no files, no settings."""
