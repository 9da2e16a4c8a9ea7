"""What dashboards in use ask kafka_exporter for, with their variables: facts about them, so that they find the same here.

Sources: Grafana's dashboard 7589 (Kafka Exporter Overview); kafka_exporter's own `kafka_exporter_overview.json`; Strimzi's
`strimzi-kafka-exporter.json`, which is made from 7589, less `kafka_exporter_build_info`, which is kafka_exporter's own. And
what Strimzi's `strimzi-kafka.json` asks the JMX exporter for, less metrics of the JVM, of Kubernetes, and of unclean elections.
"""

DASHBOARD_7589 = {
    "Message in per second": (
        'sum(rate(kafka_topic_partition_current_offset{instance="$instance", topic=~"$topic"}[1m])) by (topic)'
    ),
    "Lag by Consumer Group": 'sum(kafka_consumergroup_lag{instance="$instance",topic=~"$topic"}) by (consumergroup, topic)',
    "Message in per minute": (
        "sum(delta(kafka_topic_partition_current_offset{instance=~'$instance', topic=~\"$topic\"}[5m])/5) by (topic)"
    ),
    "Message consume per minute": (
        "sum(delta(kafka_consumergroup_current_offset{instance=~'$instance',topic=~\"$topic\"}[5m])/5) "
        "by (consumergroup, topic)"
    ),
    "Partitions per Topic": 'sum by(topic) (kafka_topic_partitions{instance="$instance",topic=~"$topic"})',
}

VARIABLES_7589 = {
    "job": ("kafka_consumergroup_current_offset", "job"),
    "instance": ('kafka_consumergroup_current_offset{job=~"$job"}', "instance"),
    "topic": (
        "kafka_topic_partition_current_offset{instance='$instance',topic!='__consumer_offsets',topic!='--kafka'}",
        "topic",
    ),
}

OVERVIEW = {
    "Offset per Topic": 'sum(rate(kafka_topic_partition_current_offset{topic!="__consumer_offsets"}[1m])) by (topic)',
    "Lag per Topic / Group": "sum(kafka_consumergroup_lag) by (consumergroup, topic)",
    "Partitions per Topic": 'sum by(topic) (kafka_topic_partitions{topic!="__consumer_offsets"})',
}

STRIMZI = {
    "Topics": 'count(kafka_topic_partitions{topic=~"$topic"})',
    "Partitions": 'sum(kafka_topic_partitions{topic=~"$topic"})',
    "Replicas": 'sum(kafka_topic_partition_replicas{topic=~"$topic"})',
    "In Sync Replicas": 'sum(kafka_topic_partition_in_sync_replica{topic=~"$topic"})',
    "Under Replicated Partitions": 'sum(kafka_topic_partition_under_replicated_partition{topic=~"$topic"})',
    "Messages in per second": 'sum(rate(kafka_topic_partition_current_offset{topic=~"$topic"}[1m])) by (topic)',
    "Messages consumed per second": (
        'sum(delta(kafka_consumergroup_current_offset{consumergroup=~"$consumergroup",topic=~"$topic"}[1m])/60) '
        "by (consumergroup, topic)"
    ),
    "Lag by Consumer Group": (
        'sum(kafka_consumergroup_lag{consumergroup=~"$consumergroup",topic=~"$topic"}) by (consumergroup, topic)'
    ),
    "Consumer Group Offsets": (
        'sum(kafka_consumergroup_current_offset{consumergroup=~"$consumergroup",topic=~"$topic"}) '
        "by (consumergroup,partition,topic)"
    ),
    "Consumer Group Lag": (
        'sum(kafka_consumergroup_lag{consumergroup=~"$consumergroup",topic=~"$topic"}) by (consumergroup,partition,topic)'
    ),
    "At Min ISR Partitions": 'sum(kafka_cluster_partition_atminisr{topic=~"$topic"})',
    "Under Min ISR Partitions": 'sum(kafka_cluster_partition_underminisr{topic=~"$topic"})',
    "Number of Partitions": 'sum(kafka_topic_partitions{topic=~"$topic"}) by (topic)',
    "Latest Offsets": 'sum(kafka_topic_partition_current_offset{topic=~"$topic"}) by (partition,topic)',
    "Oldest Offsets": 'sum(kafka_topic_partition_oldest_offset{topic=~"$topic"}) by (partition,topic)',
}

STRIMZI_KAFKA = {
    "Brokers Online": "count(kafka_server_replicamanager_leadercount)",
    "Active Controllers": "sum(kafka_controller_kafkacontroller_activecontrollercount)",
    "Replicas": "sum(kafka_server_replicamanager_partitioncount)",
    "Under Replicated Partitions": "sum(kafka_server_replicamanager_underreplicatedpartitions)",
    "Partitions at minimum ISR": "sum(kafka_cluster_partition_atminisr)",
    "Partitions under minimum ISR": "sum(kafka_cluster_partition_underminisr)",
    "Offline Partitions": "sum(kafka_controller_kafkacontroller_offlinepartitionscount)",
    "CPU Usage": "sum(rate(process_cpu_seconds_total[1m]))",
    "Open File Descriptors": "sum(process_open_fds) by (instance)",
    "Disk Writes": "sum(rate(kafka_server_kafkaserver_linux_disk_write_bytes[1m]))",
    "Disk Reads": "sum(rate(kafka_server_kafkaserver_linux_disk_read_bytes[1m]))",
    "Incoming Byte Rate": 'sum(irate(kafka_server_brokertopicmetrics_bytesin_total{topic!=""}[5m]))',
    "Outgoing Byte Rate": 'sum(irate(kafka_server_brokertopicmetrics_bytesout_total{topic!=""}[5m]))',
    "Incoming Messages Rate": 'sum(irate(kafka_server_brokertopicmetrics_messagesin_total{topic!=""}[5m]))',
    "Total Produce Request Rate": 'sum(irate(kafka_server_brokertopicmetrics_totalproducerequests_total{topic!=""}[5m]))',
    "Failed Produce Request Rate": 'sum(irate(kafka_server_brokertopicmetrics_failedproducerequests_total{topic!=""}[5m]))',
    "Total Fetch Request Rate": 'sum(irate(kafka_server_brokertopicmetrics_totalfetchrequests_total{topic!=""}[5m]))',
    "Failed Fetch Request Rate": 'sum(irate(kafka_server_brokertopicmetrics_failedfetchrequests_total{topic!=""}[5m]))',
    "Network Processor Idle": "sum(kafka_network_socketserver_networkprocessoravgidle_percent*100) by (instance)",
    "Request Handler Idle": "sum(kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent*100) by (instance)",
    "Connection Count": "sum(kafka_server_socket_server_metrics_connection_count) by (listener)",
    "Log Size": 'topk(10, sum(kafka_log_log_size{topic=~".+"}) by (topic))',
}

COUNTS_OF_WHAT_IS_WRONG = {
    "Partitions not on preferred node": 'count(kafka_topic_partition_leader_is_preferred{topic=~"$topic"}<1)',
}
"""No data is the answer of a cluster that is well; what they count must have data."""
