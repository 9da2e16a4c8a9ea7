"""The page: one self-contained HTML file, and its charts as PNG and PDF.

Runs in the driver of the report's job. `document` writes the sections, `charts` defines the contents of a chart, `svg` and
`plots` draw it, `text` formats quantities and tables. The same figures produce the same bytes.
"""
