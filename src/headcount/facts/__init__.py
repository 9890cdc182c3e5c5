"""What is true: model shapes, GPUs, links, prices, precisions, recipes. Data in `data/*.toml`, each row with its source."""
