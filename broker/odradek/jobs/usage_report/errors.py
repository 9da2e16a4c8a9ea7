"""What ends the job: one line that says what is wrong and what would be right."""

INSTALL = "pip install 'matplotlib>=3.8' 'pandas>=2.2,<3' 'pyarrow>=15' 'pyspark==4.0.0' (Odradek's extra `jobs`)"
"""What installs the packages that the job needs, wherever Odradek itself came from."""


class ReportError(Exception):
    """The report cannot be made; the message is for the person who asked for it."""
