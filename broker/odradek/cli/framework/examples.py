"""Examples of the command, which the help and the man pages show: of each command a text and one or several command lines.

Tests parse every line with the command itself, so that no example names an option that does not exist, and require an example
of each command.
"""

EXAMPLES: dict[str, tuple[tuple[str, ...], ...]] = {
    "odradek": (
        ("Run a broker in the foreground, with its data in the current directory:",
         "odradek start --set log.dirs=./data"),
        ("Create a topic, send the lines of a file to it, and read them back:",
         "odradek topic create orders -p 12",
         "odradek produce orders lines.txt",
         "odradek consume orders --from beginning --exit"),
    ),
    "odradek acl list": (
        ("List the rules that apply to a topic, also those of prefixes and wildcards:",
         "odradek acl list --topic orders --applying"),
        ("List the rules for a user:", "odradek acl list --principal User:alice"),
    ),
    "odradek acl add": (
        ("Allow an application to write to a topic:", "odradek acl add --producer --topic orders --allow User:alice"),
        ("Allow an application to read all topics that begin with orders- in a group:",
         "odradek acl add --consumer --prefix --topic orders- --group billing --allow User:bob"),
        ("Deny writes of a user from one address:",
         "odradek acl add --topic '*' --operation write --deny User:mallory --host 10.0.0.7"),
    ),
    "odradek acl remove": (
        ("Remove what `add` with the same options added:",
         "odradek acl remove --producer --topic orders --allow User:alice"),
    ),
    "odradek acl explain": (
        ("Show which rule decides about an operation:",
         "odradek acl explain --topic orders --operation read --principal User:carol"),
    ),
    "odradek acl unused": (("List the ACLs that no client needed in 30 days:", "odradek acl unused --since -30d"),),
    "odradek adopt": (
        ("Show what an adoption of the directories of a stopped Kafka broker would do:",
         "odradek adopt --check --config server.properties"),
        ("Take the directories over:", "odradek adopt --config server.properties"),
    ),
    "odradek backup create": (
        ("Back up the broker that runs on a log directory, and check the backup:",
         "odradek backup create --data-dir /var/lib/odradek/data /backup/monday",
         "odradek backup verify /backup/monday"),
        ("Copy only what an earlier backup does not have, at most 50 MB per second:",
         "odradek backup create --config server.properties --base /backup/monday --throttle 50MB /backup/tuesday"),
    ),
    "odradek backup verify": (("Check all checksums and batches:", "odradek backup verify /backup/monday"),),
    "odradek backup restore": (
        ("Restore into a new or empty directory:",
         "odradek backup restore /backup/monday --into /var/lib/odradek/data"),
        ("Restore a copy that runs beside the original:",
         "odradek backup restore /backup/monday --into /tmp/copy/data --new-cluster-id"),
    ),
    "odradek certificate": (
        ("Show the certificates that a listener presents:", "odradek certificate broker-1.example.org:9093"),
        ("Show the principal of a client with a certificate:",
         "odradek certificate client.pem --rules 'RULE:^CN=([^,]+).*$/$1/,DEFAULT'"),
    ),
    "odradek cluster describe": (
        ("Show the brokers of a cluster:", "odradek cluster describe -b broker-1.example.org:9092"),
    ),
    "odradek cluster wait": (
        ("Wait until three brokers are registered and all replicas are in sync:",
         "odradek cluster wait --in-sync --brokers 3 --timeout 10m"),
        ("Wait after the restart of broker 2:", "odradek cluster wait --broker 2 --in-sync"),
    ),
    "odradek cluster check": (
        ("Compare ZooKeeper with what each broker reports about a topic:", "odradek cluster check --topic orders"),
    ),
    "odradek completion": (
        ("Load the script once, in bash:", 'eval "$(odradek completion bash)"'),
        ("Load it in each new zsh, by this line in ~/.zshrc:", 'eval "$(odradek completion zsh)"'),
    ),
    "odradek config get": (
        ("Show the settings of a topic that differ from the defaults:",
         "odradek config get --topic orders --changed"),
    ),
    "odradek config set": (
        ("Change a setting of all brokers without a restart:",
         "odradek config set --all-brokers log.cleaner.threads=2"),
        ("Show what a shorter retention would delete:", "odradek config set --topic orders retention.ms=1d --dry-run"),
    ),
    "odradek config explain": (
        ("Explain a key without a broker:", "odradek config explain retention.ms"),
        ("Show what a shorter retention would delete now:", "odradek config explain --topic orders retention.ms=1h"),
    ),
    "odradek config check": (
        ("Check a configuration file before a restart:", "odradek config check /etc/odradek/server.properties"),
    ),
    "odradek consume": (
        ("Print the last ten records of each partition of all topics that begin with ord:",
         "odradek consume 'ord*' --from -10 --exit"),
        ("Print records as a member of a consumer group, which commits their offsets:",
         "odradek consume orders --group billing -n 100"),
        ("Print the keys and values of the last hour as JSON:",
         "odradek consume orders --from '1h ago' --exit --json"),
    ),
    "odradek demo": (("Send 100 MB through a temporary broker:", "odradek demo --megabytes 100"),),
    "odradek doctor": (
        ("Check a cluster:", "odradek doctor -b broker-1.example.org:9092"),
        ("Check the broker of this machine too, its disks, processes and certificates:",
         "odradek doctor --data-dir /var/lib/odradek/data"),
        ("Write an archive for a bug report:",
         "odradek doctor --data-dir /var/lib/odradek/data --bundle odradek.tar.gz"),
    ),
    "odradek group list": (
        ("List the groups with the largest lag first:", "odradek group list --sort lag"),
        ("List the groups that have members:", "odradek group list --state Stable"),
    ),
    "odradek group describe": (
        ("Show members, committed offsets and lag:", "odradek group describe billing"),
    ),
    "odradek group explain": (
        ("Show which members joined and left, and why:", "odradek group explain billing"),
    ),
    "odradek group reset-offsets": (
        ("Show what moving a group back by two hours would change:",
         "odradek group reset-offsets billing --topic orders --to '2h ago' --dry-run"),
        ("Move a group to the ends of the logs, so that it skips the present records:",
         "odradek group reset-offsets billing --to latest"),
    ),
    "odradek group delete": (("Delete a group without members:", "odradek group delete billing"),),
    "odradek load run": (
        ("Load what is new since the last run into Parquet files:",
         "odradek load run orders payments --out /srv/loads"),
        ("Load all topics of a shop, also those that are new at a run:",
         "odradek load run --topics-matching 'shop[.].*' --out /srv/loads --version shop"),
        ("Load a week:",
         "odradek load run orders --out /srv/loads --from 2026-11-01T00:00Z --to 2026-11-08T00:00Z --version week-45"),
    ),
    "odradek load verify": (
        ("Compare the files with their commits and with the broker:", "odradek load verify --out /srv/loads"),
    ),
    "odradek load merge": (("Merge small files:", "odradek load merge --out /srv/loads"),),
    "odradek load versions": (("Show what each version has:", "odradek load versions --out /srv/loads"),),
    "odradek log verify": (
        ("Check all logs of a directory, with every record:", "odradek log verify --deep /var/lib/odradek/data"),
    ),
    "odradek log dump": (
        ("Print the records of a partition:", "odradek log dump --deep /var/lib/odradek/data/orders-0"),
    ),
    "odradek mirror check": (
        ("Check a mirror's file and its clusters:", "odradek mirror check mirror.properties"),
    ),
    "odradek mirror run": (("Run a worker; several share the work:", "odradek mirror run mirror.properties"),),
    "odradek mirror status": (
        ("Show the position and lag of each partition:", "odradek mirror status mirror.properties --partitions"),
    ),
    "odradek mirror switch": (
        ("Show how a consumer group would move to the other cluster:",
         "odradek mirror switch billing mirror.properties --dry-run"),
        ("Move a group whose cluster is lost:", "odradek mirror switch billing mirror.properties --source-lost"),
    ),
    "odradek mirror groups": (
        ("List the groups that can move if the source is lost:", "odradek mirror groups mirror.properties"),
    ),
    "odradek offsets migrate": (
        ("Copy the offsets of a group of old consumers to __consumer_offsets:",
         "odradek offsets migrate billing --to log"),
    ),
    "odradek partition explain": (
        ("Show what the replicas of a partition wait for:", "odradek partition explain orders-0"),
    ),
    "odradek partition move": (
        ("Show the plan that moves all partitions off broker 3 before its removal:",
         "odradek partition move --off 3 --throttle 50MB --dry-run"),
        ("Give all brokers the same number of replicas:", "odradek partition move --balance --wait"),
    ),
    "odradek partition moves": (
        ("Show the reassignments and how much is copied:", "odradek partition moves"),
        ("Wait for their end, and remove their throttles:", "odradek partition moves --wait"),
    ),
    "odradek partition elect": (
        ("Let the preferred leaders of a topic lead again:", "odradek partition elect --topic orders"),
    ),
    "odradek produce": (
        ("Send the lines of a file as key:value, compressed:", "odradek produce orders -K : -z zstd lines.txt"),
        ("Copy the records that another command writes as JSON:", "odradek produce copy -f json"),
    ),
    "odradek quota list": (("List all quotas:", "odradek quota list"),),
    "odradek quota describe": (("Show the quotas of a client id:", "odradek quota describe --client-id app"),),
    "odradek quota set": (
        ("Limit a user to 10 MiB/s of produce requests for each broker:",
         "odradek quota set --user alice producer_byte_rate=10485760"),
    ),
    "odradek quota remove": (
        ("Remove one quota of a user:", "odradek quota remove --user alice producer_byte_rate"),
    ),
    "odradek quota throttled": (
        ("Show the clients that a broker throttles now:", "odradek quota throttled -m 10.0.0.1:9404"),
    ),
    "odradek report usage": (
        ("Report the previous day from the usage spool of a broker:",
         "odradek report usage --spool /var/lib/odradek/data --out /var/lib/odradek-report"),
        ("Report the last week of a cluster from a Prometheus:",
         "odradek report usage --prometheus http://localhost:9090 --from -7d --out report"),
    ),
    "odradek start": (
        ("Start with a configuration file, and log details:",
         "odradek start --config /etc/odradek/server.properties --log-level DEBUG"),
        ("Start without a configuration file, on another port:",
         "odradek start --set log.dirs=./data --set listeners=PLAINTEXT://:9093"),
    ),
    "odradek status": (
        ("Show the state of the broker that runs as a service:",
         "odradek status --config /etc/odradek/server.properties"),
    ),
    "odradek stop": (("Stop the broker of a log directory:", "odradek stop --data-dir ./data"),),
    "odradek token create": (
        ("Create a token that bob may renew for a week:", "odradek token create --renewer bob --max-lifetime 7d"),
    ),
    "odradek token describe": (("Show the tokens of a user:", "odradek token describe --owner alice"),),
    "odradek token renew": (("Let a token expire in 12 hours:", "odradek token renew ID --period 12h"),),
    "odradek token expire": (("Remove a token:", "odradek token expire ID"),),
    "odradek topic create": (
        ("Create a topic that keeps records for a week:", "odradek topic create orders -p 12 -c retention.ms=7d"),
    ),
    "odradek topic list": (
        ("List topics that begin with ord, with their sizes:", "odradek topic list 'ord*' --sizes"),
    ),
    "odradek topic describe": (
        ("Show the partitions, leaders and settings of a topic:", "odradek topic describe orders"),
    ),
    "odradek topic alter": (
        ("Show what fewer days and more partitions would change:",
         "odradek topic alter orders -p 24 -c retention.ms=3d --dry-run"),
    ),
    "odradek topic truncate": (
        ("Delete all records that are older than a week:", "odradek topic truncate orders --before-time -7d"),
    ),
    "odradek topic delete": (("Delete all topics that begin with test-:", "odradek topic delete 'test-*'"),),
    "odradek transaction list": (
        ("List transactions that have been open for more than 5 minutes:",
         "odradek transaction list --state Ongoing --older-than 5m"),
    ),
    "odradek transaction describe": (
        ("Show the producer and the partitions of a transaction:", "odradek transaction describe payments-1"),
    ),
    "odradek transaction abort": (
        ("Abort the transaction of a transactional id, and fence its producer:",
         "odradek transaction abort payments-1"),
        ("End a hanging transaction in one partition:",
         "odradek transaction abort --topic orders --partition 0 --start-offset 4711"),
    ),
    "odradek transaction hanging": (
        ("Find transactions that no coordinator will end:", "odradek transaction hanging"),
    ),
    "odradek usage top": (
        ("Show the clients with the most traffic now:", "odradek usage top"),
        ("Show which topics are read most:", "odradek usage top --by topic --sort out"),
    ),
    "odradek usage show": (
        ("Show the sums of a week by client, for the topics that begin with ord:",
         "odradek usage show --by client --topic 'ord*' --since -7d"),
    ),
    "odradek usage topic": (
        ("Show who writes and reads a topic, and the lag of its readers:", "odradek usage topic orders"),
    ),
    "odradek user list": (("List the users who log in with SCRAM:", "odradek user list"),),
    "odradek user describe": (("Show the mechanisms of a user:", "odradek user describe bob"),),
    "odradek user add": (
        ("Create a user; the command asks for the password:", "odradek user add bob"),
        ("Create the first user, while the broker is stopped:",
         "odradek user add admin --data-dir /var/lib/odradek/data"),
    ),
    "odradek user remove": (("Remove the login of a user:", "odradek user remove bob"),),
}  # fmt: skip
