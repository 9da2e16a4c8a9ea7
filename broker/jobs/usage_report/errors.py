"""What ends the job: one line that says what is wrong and what would be right."""


class ReportError(Exception):
    """The report cannot be made; the message is for the person who asked for it."""
