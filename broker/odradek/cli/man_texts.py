"""What the man pages say beyond the help texts: exit status, environment, files, and examples for each command.

Tests parse every example with the command itself, so that no example names an option that does not exist.
"""

EXIT_STATUS = {
    "0": "Success.",
    "1": "The command failed, or a check found something. One line on standard error names the error and the remedy.",
    "2": "The command line is not valid.",
    "3": "Only status: the broker is not running.",
    "130": "SIGINT (Ctrl-C) ended the command. start ends with 0 instead, after an ordered stop.",
    "143": "SIGTERM ended the command. start ends with 0 instead, after an ordered stop.",
}

ENVIRONMENT = {
    "ODRADEK_BOOTSTRAP_SERVERS": "Brokers to connect to, as HOST:PORT,...; the option --bootstrap-server overrides it.",
    "ODRADEK_COMMAND_CONFIG": "File with the settings of clients (TLS, SASL); the option --command-config overrides it.",
    "ODRADEK_METRICS": "Address of a broker's metrics, as HOST:PORT; the option --metrics overrides it.",
    "ODRADEK_COMPLETE_NAMES": "If it is 1, the shell also completes names of topics, groups and transactional ids. The command"
    " then connects to the cluster each time that Tab is pressed, and waits at most one second.",
}

FILES = {
    "/etc/odradek/server.properties": "Configuration of the broker, if it was installed as a service. The keys are Kafka's.",
    "/var/lib/odradek/data": "Log directory of the installed service (log.dirs).",
    "/opt/odradek/share/docs": "Documentation: configuration.md describes every key, alerts.md every alert.",
    "DIR/odradek.pid": "Process id and listeners of the broker that runs on the log directory DIR.",
}

OPTIONS_NOTE = (
    "-b HOST:PORT,... (--bootstrap-server) and --command-config FILE say how to connect to the cluster. -b may also be "
    "written before the name of the command. Times are 2026-01-31T12:00, 2026-01-31T12:00:00Z or ms since 1970; "
    "time spans are 7d, 1h30m or 90s; sizes are 512MiB or 10GB."
)

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "odradek": (
        ("Run a broker in the foreground, with its data in the current directory:",
         "odradek start --set log.dirs=./data"),
        ("Create a topic, send the lines of a file to it, and read them back:",
         "odradek topic create orders -p 12"),
        ("", "odradek produce orders lines.txt"),
        ("", "odradek consume orders --from beginning --exit"),
    ),
    "odradek acl": (
        ("Allow an application to write to a topic:",
         "odradek acl add --producer --topic orders --allow User:alice"),
        ("Find out which rule decides about an operation:",
         "odradek acl explain --topic orders --operation read --principal User:carol"),
    ),
    "odradek adopt": (
        ("Show what an adoption of the directories of a stopped Kafka broker would do:",
         "odradek adopt --check --config server.properties"),
    ),
    "odradek backup": (
        ("Back up the broker that runs on a log directory, and check the backup:",
         "odradek backup create --data-dir /var/lib/odradek/data /backup/monday"),
        ("", "odradek backup verify /backup/monday"),
    ),
    "odradek certificate": (
        ("Show the certificates that a listener presents:", "odradek certificate broker-1.example.org:9093"),
    ),
    "odradek cluster": (
        ("Show the brokers of a cluster:", "odradek cluster describe -b broker-1.example.org:9092"),
        ("Wait until three brokers are registered and all replicas are in sync:",
         "odradek cluster wait --in-sync --brokers 3 --timeout 10m"),
    ),
    "odradek completion": (("Load the script once, in bash:", 'eval "$(odradek completion bash)"'),),
    "odradek config": (
        ("Explain a key without a broker:", "odradek config explain retention.ms"),
        ("Check a configuration file before a restart:", "odradek config check /etc/odradek/server.properties"),
        ("Show what a shorter retention would delete now:", "odradek config explain --topic orders retention.ms=1h"),
        ("Change a setting of all brokers without a restart:",
         "odradek config set --all-brokers log.cleaner.threads=2"),
    ),
    "odradek consume": (
        ("Print the last ten records of each partition of all topics that begin with ord:",
         "odradek consume 'ord*' --from -10 --exit"),
        ("Print records as a member of a consumer group, which commits their offsets:",
         "odradek consume orders --group billing -n 100"),
    ),
    "odradek demo": (("Send 100 MB through a temporary broker:", "odradek demo --megabytes 100"),),
    "odradek doctor": (("Check a cluster:", "odradek doctor -b broker-1.example.org:9092"),),
    "odradek group": (
        ("Show members, committed offsets and lag:", "odradek group describe billing"),
        ("Show what moving a group back by two hours would change:",
         "odradek group reset-offsets billing --topic orders --to '2h ago' --dry-run"),
    ),
    "odradek log": (
        ("Check all logs of a directory, with every record:", "odradek log verify --deep /var/lib/odradek/data"),
        ("Print the records of a partition:", "odradek log dump --deep /var/lib/odradek/data/orders-0"),
    ),
    "odradek mirror": (
        ("Check a mirror's file and its clusters, run a worker, and show the lag:",
         "odradek mirror check mirror.properties"),
        ("", "odradek mirror run mirror.properties"),
        ("", "odradek mirror status mirror.properties --partitions"),
        ("Show how a consumer group would move to the other cluster:",
         "odradek mirror switch billing mirror.properties --dry-run"),
        ("Move a group whose cluster is lost:", "odradek mirror groups mirror.properties"),
        ("", "odradek mirror switch billing mirror.properties --source-lost"),
    ),
    "odradek offsets": (
        ("Copy the offsets of a group of old consumers to __consumer_offsets:",
         "odradek offsets migrate billing --to log"),
    ),
    "odradek partition": (
        ("Show what the replicas of a partition wait for:", "odradek partition explain orders-0"),
        ("Show the plan that moves all partitions off broker 3 before its removal:",
         "odradek partition move --off 3 --throttle 50MB --dry-run"),
    ),
    "odradek produce": (
        ("Send the lines of a file as key:value, compressed:", "odradek produce orders -K : -z zstd lines.txt"),
    ),
    "odradek quota": (
        ("Limit a user to 10 MiB/s of produce requests for each broker:",
         "odradek quota set --user alice producer_byte_rate=10485760"),
    ),
    "odradek report": (
        ("Report the previous days from the usage spool of a broker:",
         "odradek report usage --spool /var/lib/odradek/data --out /var/lib/odradek-report"),
    ),
    "odradek start": (
        ("Start with a configuration file, and log details:",
         "odradek start --config /etc/odradek/server.properties --log-level DEBUG"),
    ),
    "odradek status": (
        ("Show the state of the broker that runs as a service:",
         "odradek status --config /etc/odradek/server.properties"),
    ),
    "odradek stop": (("Stop the broker of a log directory:", "odradek stop --data-dir ./data"),),
    "odradek token": (("Show delegation tokens:", "odradek token describe"),),
    "odradek topic": (
        ("Create a topic that keeps records for a week:", "odradek topic create orders -p 12 -c retention.ms=7d"),
        ("Delete all records that are older than a week:", "odradek topic truncate orders --before-time -7d"),
    ),
    "odradek transaction": (
        ("Find transactions that no coordinator will end:", "odradek transaction hanging"),
    ),
    "odradek usage": (("Show who uses the broker most:", "odradek usage top"),),
    "odradek user": (("Create a user; the command asks for the password:", "odradek user add bob"),),
}  # fmt: skip
