"""Text to unit vectors. `ports` says what an embedder promises; `static`, `minilm` and `openai` are what there is."""
