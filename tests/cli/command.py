"""Runs the odradek command in a separate process, as users do."""

import json
import os
import subprocess
import sys


class Command:
    """Runs commands. :param servers: value of ODRADEK_BOOTSTRAP_SERVERS."""

    def __init__(self, servers):
        self._environment = os.environ | {"ODRADEK_BOOTSTRAP_SERVERS": servers}

    def run(self, *arguments, stdin=""):
        command = [sys.executable, "-m", "odradek.cli.main", *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, input=stdin, timeout=120, check=False, env=self._environment
        )

    def __call__(self, *arguments, stdin=""):
        """Run a command that must succeed; return its standard output."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done
        return done.stdout

    def json(self, *arguments, stdin=""):
        """Run a command with --json; return its output, which must be one JSON document."""
        return json.loads(self(*arguments, "--json", stdin=stdin))

    def lines(self, *arguments, stdin=""):
        """Run a command; return its output, which must be lines of JSON."""
        return [json.loads(line) for line in self(*arguments, stdin=stdin).splitlines()]

    def refused(self, *arguments, code=1, stdin="", words=()):
        """Run a command that must fail with this exit code and one line on stderr that has the words; return the line."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == code, done
        assert done.stderr.startswith("odradek: ") and done.stderr.count("\n") == 1, done.stderr
        for word in words:
            assert word in done.stderr, done.stderr
        return done.stderr
