"""Calls the odradek command as people do, in a process of its own."""

import json
import os
import subprocess
import sys


class Command:
    """:param servers: what the environment names as the brokers."""

    def __init__(self, servers):
        self._environment = os.environ | {"ODRADEK_BOOTSTRAP_SERVERS": servers}

    def run(self, *arguments, stdin=""):
        command = [sys.executable, "-m", "odradek.cli.main", *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, input=stdin, timeout=120, check=False, env=self._environment
        )

    def __call__(self, *arguments, stdin=""):
        """What it prints; it must succeed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done
        return done.stdout

    def json(self, *arguments, stdin=""):
        """What it prints with --json, which must be one document."""
        return json.loads(self(*arguments, "--json", stdin=stdin))

    def lines(self, *arguments, stdin=""):
        """What it prints as lines of JSON."""
        return [json.loads(line) for line in self(*arguments, stdin=stdin).splitlines()]

    def refused(self, *arguments, code=1, stdin="", words=()):
        """Its one line on stderr; it must fail with this exit code."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == code, done
        assert done.stderr.startswith("odradek: ") and done.stderr.count("\n") == 1, done.stderr
        for word in words:
            assert word in done.stderr, done.stderr
        return done.stderr
