"""What is asked: networks, lengths, work, layout, hardware; read from TOML with every mistake reported at once."""
