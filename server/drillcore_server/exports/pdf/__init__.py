"""The PDF copy: blocks set on pages, pages bound into volumes, volumes signed (PAdES).

fonts           faces that cover the text, joined Arabic letters, and lines that run from right to left
line_breaks     text broken into lines that fit
typeset         blocks set on pages
volumes         pages with contents, page numbers and running titles, written as PDF
pdf_signature   the digital signature, and the key and fonts of the settings
"""
