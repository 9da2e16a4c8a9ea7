"""What the man pages say beyond the help texts: exit status, environment and files."""

EXIT_STATUS = {
    "0": "Success.",
    "1": "The command failed, or a check found something. One line on standard error names the error and the remedy.",
    "2": "The command line is not valid.",
    "3": "Only status: the broker is not running.",
    "130": "SIGINT (Ctrl-C) ended the command. start ends with 0 instead, after an ordered stop.",
    "141": "The output is a pipe, and its reader ended before the command.",
    "143": "SIGTERM ended the command. start ends with 0 instead, after an ordered stop.",
}

ENVIRONMENT = {
    "ODRADEK_BOOTSTRAP_SERVERS": "Brokers to connect to, as HOST:PORT,...; the option --bootstrap-server overrides it.",
    "ODRADEK_COMMAND_CONFIG": "File with the settings of clients (TLS, SASL); the option --command-config overrides it.",
    "ODRADEK_METRICS": "Address of a broker's metrics, as HOST:PORT; the option --metrics overrides it.",
    "ODRADEK_COMPLETE_NAMES": "If it is 1, the shell also completes names of topics, groups and transactional ids. The command"
    " then connects to the cluster each time that Tab is pressed, and waits at most one second.",
    "ODRADEK_METRICS_LOGIN": "USER:PASSWORD for the metrics listeners that report usage reads with --spool http://HOST:PORT.",
    "ODRADEK_PROMETHEUS_LOGIN": "USER:PASSWORD for the Prometheus that report usage reads with --prometheus.",
    "NO_COLOR": "If it is not empty, the output on a terminal has no colours.",
}

FILES = {
    "/etc/odradek/server.properties": "Configuration of the broker, if it was installed as a service. The keys are Kafka's.",
    "/var/lib/odradek/data": "Log directory of the installed service (log.dirs).",
    "/opt/odradek/share/docs": "Documentation. README.md lists the pages; reference/ has every key, metric, alert and command.",
    "DIR/odradek.pid": "Process id and listeners of the broker that runs on the log directory DIR.",
}

OPTIONS_NOTE = (
    "-b HOST:PORT,... (--bootstrap-server) and --command-config FILE say how to connect to the cluster. -b may also be "
    "written before the name of the command. Times are 2026-01-31T12:00, 2026-01-31T12:00:00Z or ms since 1970; "
    "time spans are 7d, 1h30m or 90s; sizes are 512MiB or 10GB."
)
