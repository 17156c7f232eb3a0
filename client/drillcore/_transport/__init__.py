"""How calls reach a server: settings, channels, and calls that stream, continue or transfer files."""
