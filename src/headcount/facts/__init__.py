"""What is true: model shapes, GPUs, prices, precisions, recipes. Data in `data/*.toml`, each row with its source."""
