"""Metrics of the cluster, of groups and of readers, and of this broker's part in the cluster. Constants."""

from odradek.metrics.metric import COUNTER, GAUGE, SUMMARY, UNTYPED, rows

PLACE = "topic partition"
GROUP_PLACE = "consumergroup topic partition"
READER = "principal client_id topic partition"

CLUSTER = (
    *rows(GAUGE, "", {"kafka_brokers": "Number of brokers in the cluster."}),
    *rows(
        GAUGE,
        "id address",
        {
            "kafka_broker_info": "Always 1; the labels are the id of a broker and the address at which clients connect to it."
        },
    ),
    *rows(GAUGE, "topic", {"kafka_topic_partitions": "Number of partitions of a topic."}),
    *rows(
        GAUGE,
        PLACE,
        {
            "kafka_topic_partition_current_offset": "High watermark of a partition: the offset after its last committed "
            "record.",
            "kafka_topic_partition_oldest_offset": "Log start offset of a partition.",
            "kafka_topic_partition_in_sync_replica": "Number of in-sync replicas of a partition.",
            "kafka_topic_partition_leader": "Id of the broker that leads a partition.",
            "kafka_topic_partition_leader_is_preferred": "1 if the leader of a partition is its preferred (first) "
            "replica, else 0.",
            "kafka_topic_partition_replicas": "Number of replicas of a partition.",
            "kafka_topic_partition_under_replicated_partition": "1 if a partition has fewer in-sync replicas than "
            "replicas, else 0.",
        },
    ),
    *rows(
        GAUGE,
        PLACE,
        {
            "underminisr": "1 if a partition led by this broker has fewer in-sync replicas than min.insync.replicas, else 0. "
            'With topic="other": the number of such partitions in all topics without series.',
            "atminisr": "1 if a partition led by this broker has exactly min.insync.replicas in-sync replicas, else 0. "
            'With topic="other": the number of such partitions in all topics without series.',
        },
        "kafka_cluster_partition_",
    ),
)

GROUPS = (
    *rows(
        GAUGE,
        GROUP_PLACE,
        {
            "current_offset": "Committed offset of a consumer group in a partition.",
            "lag": "Consumer lag in records: the high watermark of a partition minus the committed offset of a group.",
        },
        "kafka_consumergroup_",
    ),
    *rows(
        UNTYPED,
        "consumergroup topic",
        {
            "current_offset_sum": "Sum of a consumer group's committed offsets over the partitions of a topic.",
            "lag_sum": "Consumer lag of a group in a topic, in records: the sum over the topic's partitions whose log is on "
            "this broker. In a cluster partitions may be missing: odradek_consumergroup_unknown_lag_partitions counts them.",
        },
        "kafka_consumergroup_",
    ),
    *rows(
        GAUGE,
        "consumergroup topic",
        {
            "odradek_consumergroup_unknown_lag_partitions": "Number of partitions of a topic in which a group has a committed "
            "offset, and whose lag the group's coordinator does not know, because another broker of the cluster has their log. "
            "Their lag is the highest kafka_topic_partition_current_offset of all brokers minus "
            "kafka_consumergroup_current_offset.",
        },
    ),
    *rows(GAUGE, "consumergroup", {"kafka_consumergroup_members": "Number of members of a consumer group."}),
    *rows(
        GAUGE,
        GROUP_PLACE,
        {
            "odradek_consumergroup_lag_seconds": "Consumer lag in seconds: the time since the high watermark of a partition "
            "passed the committed offset of a group; 0 without lag. A lower bound if the high watermark passed the "
            "offset before the reporter process started."
        },
    ),
    *rows(
        GAUGE,
        "state",
        {"kafka_coordinator_group_groupmetadatamanager_numgroups": "Number of groups in a state."},
    ),
    *rows(
        GAUGE,
        READER,
        {
            "position": "Position of a reader in a partition: the offset after the last record that the broker sent to the "
            "client, or the offset from which the client has fetched since then. It does not depend on commits.",
            "lag": "Lag of a reader in a partition, in records: the high watermark minus the reader's position.",
            "lag_seconds": "Lag of a reader in a partition, in seconds: the time since the high watermark passed the "
            "reader's position; 0 without lag. A lower bound if that was before the reporter process started.",
            "last_back_timestamp_seconds": "Unix time in seconds at which the position of a reader in a partition last moved "
            "back: its only connection requested records before the previous request. A reader whose position has not moved "
            "back has no series.",
        },
        "odradek_reader_",
    ),
)

BROKER = (
    *rows(
        GAUGE,
        "",
        {
            "kafka_server_replicamanager_leadercount": "Number of partitions that this broker leads.",
            "kafka_server_replicamanager_partitioncount": "Number of partitions with a replica on this broker.",
            "kafka_server_replicamanager_underreplicatedpartitions": "Number of partitions led by this broker that have "
            "fewer in-sync replicas than replicas.",
            "kafka_server_replicamanager_underminisrpartitioncount": "Number of partitions led by this broker that have "
            "fewer in-sync replicas than min.insync.replicas; they refuse Produce requests with acks=all.",
            "kafka_server_replicamanager_atminisrpartitioncount": "Number of partitions led by this broker that have "
            "exactly min.insync.replicas in-sync replicas.",
            "kafka_server_replicamanager_offlinereplicacount": "Number of partitions on this broker whose log or log "
            "directory has failed.",
            "kafka_server_replicamanager_reassigningpartitions": "Number of partitions led by this broker whose replicas a "
            "reassignment changes; 0 without a cluster.",
            "kafka_server_replicafetchermanager_maxlag": "Largest number of records by which a partition that this broker "
            "follows is behind its leader's high watermark; 0 without a cluster.",
            "kafka_server_replicafetchermanager_failedpartitionscount": "Number of partitions that this broker follows and "
            "does not fetch because of an error; the log names each. 0 without a cluster.",
            "kafka_server_leaderreplication_byte_rate": "Bytes of records per second that this broker, as the leader, sends to "
            "throttled followers that are not in sync, over the time of replication.quota.window.num windows; "
            "leader.replication.throttled.rate limits it. 0 while that is not set.",
            "kafka_server_followerreplication_byte_rate": "Bytes of records per second that this broker fetches as a throttled "
            "follower that is not in sync, over the time of replication.quota.window.num windows; "
            "follower.replication.throttled.rate limits it. 0 while that is not set.",
            "kafka_controller_kafkacontroller_activecontrollercount": "1 if this broker is the active controller, else 0.",
            "kafka_controller_kafkacontroller_offlinepartitionscount": "Number of partitions in the cluster without an "
            "available leader: clients can neither write nor read them. 0 on brokers that are not the active controller.",
            "kafka_controller_kafkacontroller_globaltopiccount": "Number of topics in the cluster. 0 on brokers that are not "
            "the active controller.",
            "kafka_controller_kafkacontroller_globalpartitioncount": "Number of partitions in the cluster. 0 on brokers that "
            "are not the active controller.",
            "kafka_controller_kafkacontroller_activebrokercount": "Number of live brokers in the cluster. 0 on brokers that "
            "are not the active controller.",
            "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": "Number of partitions in the cluster that "
            "another broker than their preferred (first) replica leads, or none. 0 on brokers that are not the active "
            "controller.",
            "kafka_log_logmanager_offlinelogdirectorycount": "Number of log directories of this broker that have failed.",
            "kafka_server_kafkaserver_brokerstate": "State of the broker, in Kafka's numbers: 3 running, 7 shutting down. "
            "Kafka's other values do not occur: metrics are served only after the start (1 starting, 2 recovery of logs), "
            "and a stop moves no leaders to other brokers (6 pending controlled shutdown).",
        },
    ),
    *rows(
        COUNTER,
        "",
        {
            "kafka_server_replicamanager_isrshrinks_total": "Number of times that a follower of a partition led by this "
            "broker left the in-sync replicas, because it lagged for replica.lag.time.max.ms or its broker stopped answering.",
            "kafka_server_replicamanager_isrexpands_total": "Number of times that a follower of a partition led by this "
            "broker joined the in-sync replicas, because it had caught up.",
            "kafka_server_replicamanager_failedisrupdates_total": "Number of proposed changes of in-sync replicas that the "
            "controller did not accept, or did not answer; the broker proposes them again where they are still right.",
            "kafka_controller_controllerstats_uncleanleaderelections_total": "Number of times that this broker as the "
            "controller elected a leader that was not in sync, so that acknowledged records may have been lost.",
            "kafka_server_sessionexpirelistener_zookeeperexpires_total": "Number of times that the session of this broker in "
            "ZooKeeper ended; other brokers then take over its partitions, and it registers again.",
            "kafka_server_sessionexpirelistener_zookeeperdisconnects_total": "Number of times that this broker lost the "
            "connection to ZooKeeper.",
        },
    ),
    *rows(
        SUMMARY,
        "quantile",
        {
            "kafka_controller_controllerstats_leaderelectionrateandtimems": "Time in milliseconds in which this broker as the "
            "controller executed changes of the live brokers, including the elections of leaders. Only the sum and "
            "the count are measured, no quantiles.",
        },
    ),
    *rows(
        GAUGE,
        PLACE,
        {
            "kafka_server_fetcherlagmetrics_consumerlag": "Number of records by which a partition that this broker follows "
            "was behind its leader's high watermark when the leader last answered. Absent until the first answer in a leader "
            "epoch, and for partitions that this broker does not follow.",
        },
    ),
    *rows(
        COUNTER,
        "role",
        {
            "odradek_throttled_replication_bytes_total": "Bytes of records of throttled replicas that are not in sync: sent "
            'by this broker (role="leader") and fetched by it (role="follower") while a limit was set.',
        },
    ),
    *rows(
        GAUGE,
        "",
        {
            "odradek_isr_change_pending_seconds": "Age in seconds of the oldest proposed change of in-sync replicas that the "
            "controller has not decided; 0 if there is none.",
            "odradek_lost_tail_partitions": "Number of partitions whose log lost records at its end when this broker loaded "
            "it, and which have neither been in sync again nor had this broker as the leader since. 0 without a cluster.",
            "odradek_lost_tail_led_partitions": "Number of partitions with other replicas that this broker leads although "
            "their log had lost records at its end when it was loaded: acknowledged records may be lost. 0 without a cluster.",
            "odradek_broker_registered": "1 while this broker is registered in ZooKeeper in a session that has not ended, "
            "else 0. Absent without a cluster.",
            "odradek_zookeeper_disconnected_seconds": "Time in seconds since this broker lost the connection to ZooKeeper; 0 "
            "while it is connected. Absent without a cluster, and while no coordinator has joined the cluster.",
        },
    ),
    *rows(
        GAUGE,
        PLACE,
        {
            "size": "Size of a partition's log on disk, in bytes.",
            "logstartoffset": "Log start offset of a partition.",
            "logendoffset": "Log end offset of a partition.",
            "numlogsegments": "Number of segments of a partition's log.",
        },
        "kafka_log_log_",
    ),
)
