"""Exact token counts of language models, offline: which model has which tokenizer, and how many tokens it takes.

model name -> models: Models -> Model: its window, its tokenizer (encodings, hugging_face, sentence_piece)
"""
