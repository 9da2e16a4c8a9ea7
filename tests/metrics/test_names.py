"""The table of metrics against what dashboards expect, and the document made from it."""

import re
from pathlib import Path

from odradek.metrics.metric import COUNTER, HISTOGRAM, SUMMARY, UNTYPED
from odradek.metrics.names import METRICS, SECTIONS
from odradek.metrics.reference import main

ROOT = Path(__file__).parents[2]

EXPECTED = """
kafka_brokers kafka_broker_info{id,address} kafka_topic_partitions{topic}
kafka_topic_partition_current_offset{topic,partition} kafka_topic_partition_oldest_offset{topic,partition}
kafka_topic_partition_in_sync_replica{topic,partition} kafka_topic_partition_leader{topic,partition}
kafka_topic_partition_leader_is_preferred{topic,partition} kafka_topic_partition_replicas{topic,partition}
kafka_topic_partition_under_replicated_partition{topic,partition}
kafka_cluster_partition_underminisr{topic,partition} kafka_cluster_partition_atminisr{topic,partition}
kafka_consumergroup_current_offset{consumergroup,topic,partition} kafka_consumergroup_current_offset_sum{consumergroup,topic}
kafka_consumergroup_lag{consumergroup,topic,partition} kafka_consumergroup_lag_sum{consumergroup,topic}
kafka_consumergroup_members{consumergroup} odradek_consumergroup_unknown_lag_partitions{consumergroup,topic}
kafka_server_brokertopicmetrics_bytesin_total{topic} kafka_server_brokertopicmetrics_bytesout_total{topic}
kafka_server_brokertopicmetrics_messagesin_total{topic} kafka_server_brokertopicmetrics_totalproducerequests_total{topic}
kafka_server_brokertopicmetrics_totalfetchrequests_total{topic}
kafka_server_brokertopicmetrics_failedproducerequests_total{topic}
kafka_server_brokertopicmetrics_failedfetchrequests_total{topic} kafka_server_brokertopicmetrics_bytesrejected_total{topic}
kafka_server_brokertopicmetrics_replicationbytesin_total{topic}
kafka_server_brokertopicmetrics_replicationbytesout_total{topic}
kafka_server_brokertopicmetrics_reassignmentbytesin_total{topic}
kafka_server_brokertopicmetrics_reassignmentbytesout_total{topic}
kafka_server_leaderreplication_byte_rate kafka_server_followerreplication_byte_rate
odradek_throttled_replication_bytes_total{role}
kafka_network_requestmetrics_requests_total{request,version} kafka_network_requestmetrics_errors_total{request,error}
kafka_network_requestmetrics_requestqueuetimems{request,quantile} kafka_network_requestmetrics_localtimems{request,quantile}
kafka_network_requestmetrics_remotetimems{request,quantile} kafka_network_requestmetrics_responsesendtimems{request,quantile}
kafka_network_requestmetrics_totaltimems{request,quantile}
kafka_server_replicafetchermanager_maxlag kafka_server_replicafetchermanager_failedpartitionscount
kafka_server_replicamanager_leadercount kafka_server_replicamanager_partitioncount
kafka_server_replicamanager_underreplicatedpartitions kafka_server_replicamanager_underminisrpartitioncount
kafka_server_replicamanager_atminisrpartitioncount kafka_server_replicamanager_offlinereplicacount
kafka_server_replicamanager_isrshrinks_total kafka_server_replicamanager_isrexpands_total
kafka_controller_kafkacontroller_activecontrollercount kafka_controller_kafkacontroller_offlinepartitionscount
kafka_controller_kafkacontroller_globaltopiccount kafka_controller_kafkacontroller_globalpartitioncount
kafka_controller_kafkacontroller_activebrokercount kafka_controller_kafkacontroller_preferredreplicaimbalancecount
kafka_controller_controllerstats_uncleanleaderelections_total
kafka_controller_controllerstats_leaderelectionrateandtimems{quantile}
kafka_server_replicamanager_reassigningpartitions kafka_server_replicamanager_failedisrupdates_total
kafka_server_sessionexpirelistener_zookeeperexpires_total kafka_server_sessionexpirelistener_zookeeperdisconnects_total
kafka_server_fetcherlagmetrics_consumerlag{topic,partition} odradek_isr_change_pending_seconds odradek_broker_registered
odradek_lost_tail_partitions odradek_lost_tail_led_partitions
odradek_zookeeper_disconnected_seconds
kafka_network_socketserver_networkprocessoravgidle_percent
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent
kafka_server_socket_server_metrics_connection_count{listener,networkprocessor}
kafka_server_socket_server_metrics_connections{clientsoftwarename,clientsoftwareversion,listener,networkprocessor}
kafka_log_log_size{topic,partition} kafka_log_log_logstartoffset{topic,partition} kafka_log_log_logendoffset{topic,partition}
kafka_log_log_numlogsegments{topic,partition} kafka_log_logmanager_offlinelogdirectorycount
kafka_server_delayedoperationpurgatory_purgatorysize{delayedoperation} kafka_server_kafkaserver_brokerstate
kafka_server_fetchsessioncache_numincrementalfetchsessions kafka_server_fetchsessioncache_numincrementalfetchpartitionscached
kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total
kafka_coordinator_group_groupmetadatamanager_numgroups{state}
process_cpu_seconds_total{process,ordinal} process_resident_memory_bytes{process,ordinal}
process_virtual_memory_bytes{process,ordinal} process_open_fds{process,ordinal} process_max_fds{process,ordinal}
process_start_time_seconds{process,ordinal}
odradek_build_info{version} odradek_boot_time_seconds odradek_worker_connections{worker}
odradek_worker_busy_seconds_total{worker} odradek_worker_loop_delay_seconds{worker,le} odradek_purgatory_size{worker,kind}
odradek_process_restarts_total{process,ordinal} odradek_process_up{process,ordinal} odradek_sendfile_bytes_total{worker}
odradek_socket_bytes_in_total{worker} odradek_socket_bytes_out_total{worker} odradek_unsent_bytes_total{worker}
odradek_bad_frames_total{worker} odradek_connections_closed_total{worker,reason}
odradek_idle_connections_memory_bytes{worker} odradek_idle_connections_memory_dropped_bytes_total{worker}
odradek_late_requests_total{process,ordinal}
odradek_lock_busy_total odradek_lock_recoveries_total
odradek_connections_limit odradek_connections_full_total odradek_connections_refused_total
kafka_server_kafkaserver_linux_disk_read_bytes{process,ordinal} kafka_server_kafkaserver_linux_disk_write_bytes{process,ordinal}
odradek_recovery_bytes{log_dir} odradek_recovered_bytes{log_dir} odradek_recovery_logs{log_dir} odradek_recovered_logs{log_dir}
odradek_recovery_truncated_bytes{log_dir} odradek_log_dir_online{log_dir} odradek_log_dir_full_state{log_dir}
odradek_log_dir_free_bytes{log_dir} odradek_log_dir_total_bytes{log_dir} odradek_log_dir_full_total{log_dir}
odradek_topic_stored_bytes{topic} odradek_produced_batch_bytes{le} odradek_topic_largest_batch_bytes{topic}
odradek_producer_state_bytes odradek_producer_state_max_bytes odradek_producer_state_producers
odradek_producers_evicted_total{reason} odradek_producer_batches_refused_total{reason}
odradek_usage_bytes_in_total{principal,client_id,topic,api} odradek_usage_bytes_out_total{principal,client_id,topic,api}
odradek_usage_records_in_total{principal,client_id,topic,api} odradek_usage_records_out_total{principal,client_id,topic,api}
odradek_usage_requests_total{principal,client_id,topic,api} odradek_usage_errors_total{principal,client_id,topic,api}
odradek_usage_throttle_seconds_total{principal,client_id,topic,api} odradek_usage_connection_seconds_total{principal,client_id}
odradek_consumergroup_lag_seconds{consumergroup,topic,partition}
odradek_reader_position{principal,client_id,topic,partition} odradek_reader_lag{principal,client_id,topic,partition}
odradek_reader_lag_seconds{principal,client_id,topic,partition}
odradek_spool_intervals_total odradek_spool_bytes odradek_spool_failures_total
"""


def test_every_name_and_label_that_dashboards_use_exists():
    expected = {}
    for word in EXPECTED.split():
        name, _, labels = word.rstrip("}").partition("{")
        expected[name] = tuple(labels.split(",")) if labels else ()
    assert {name: metric.labels for name, metric in METRICS.items()} == expected


def test_no_name_occurs_twice():
    names = [metric.name for _, section in SECTIONS for metric in section]
    assert len(set(names)) == len(names)


def test_names_have_the_endings_of_their_types():
    for name, metric in METRICS.items():
        assert name.endswith("_total") == (metric.type == COUNTER), name
        if re.search("_(count|sum|bucket)$", name):
            assert metric.type == UNTYPED, name
        assert ("le" in metric.labels) == (metric.type == HISTOGRAM), name
        assert ("quantile" in metric.labels) == (metric.type == SUMMARY), name
        assert metric.help and metric.help.endswith("."), name


def test_the_committed_document_is_up_to_date(tmp_path):
    assert main([str(tmp_path / "out.md")]) == 0
    assert (tmp_path / "out.md").read_text() == (ROOT / "docs/metrics.md").read_text(), "run: make tables"
