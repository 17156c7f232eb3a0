"""The PDF copy: blocks set on pages, pages bound into volumes, volumes signed (PAdES).

fonts      faces that cover the text, each character in the first that has it; numbers for what none has
scripts    joined letters of Arabic, and lines that run from right to left
setting    text broken into lines that fit
pages      blocks put on pages
volumes    pages with contents, numbers and running titles, written as PDF
signing    the digital signature"""
