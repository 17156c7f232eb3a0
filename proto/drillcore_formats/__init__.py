"""File formats that both server and client use: audit trails, knowledge cores, quads, slices, settings."""
