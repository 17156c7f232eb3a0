"""Signed copies of a corpus: for machines (JSON) and for people (Markdown, PDF), with equal content.

    walk       one revision of a corpus, item by item, in a fixed order
    content    the items as they stand in the JSON copy; what a signature of a node covers
    telling    the items as blocks for people: both copies for people are made of the same blocks
    copies     writes the copy of one format, and the digest that all formats share
    bundle     the copy with manifest, audit trail, checkpoint, keys and signatures, as one ZIP file

A copy is made in one pass and never held: what waits to be sent is in a sealed file (`sealed_file`).
"""
