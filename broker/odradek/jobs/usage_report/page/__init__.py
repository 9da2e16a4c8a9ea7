"""The page: one HTML file that needs nothing else, and the same charts as PNG and PDF.

Runs in the driver of the report's job. `document` writes the sections, `charts` says what a chart shows, `svg` and `plots`
draw it, `text` formats quantities and tables. The same figures make the same bytes.
"""
