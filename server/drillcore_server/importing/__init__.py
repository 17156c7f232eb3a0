"""Cores that come in: gone through once to check everything, then once more for each try to store them.

upload -> reading: quads, vectors and library documents, and the records of a full core, each checked -> CheckedCore
       -> foreign_writes, full_writes: the writes of one revision, made as they are asked for
"""
