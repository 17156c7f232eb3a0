"""Quads as files: N-Quads and Turtle, read and written by pyoxigraph."""
