"""The commands of `drillcore`, one module for each command or group of commands."""
