"""The error that ends the job: one line that says what is wrong and what would be right."""

INSTALL = (
    "pip install 'fastavro>=1.9' 'matplotlib>=3.8' 'pandas>=2.2,<3' 'pyarrow>=15' 'pyspark==4.0.0'"
    " (Odradek's extra `jobs`); with the Debian package: /opt/odradek/share/deploy/systemd/install-report-packages"
)
"""The command that installs the packages of the job."""


class ReportError(Exception):
    """The report cannot be made; the message is for the user who started the job."""
