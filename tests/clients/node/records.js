// kafkajs under the tests' contract (tests/clients/contract.py): `node records.js write|read`.
//
// kafkajs' public consumer always joins a group. To read by assignment this program drives the layer under that consumer: its
// Cluster and Broker classes, which encode the Fetch requests and decode the batches.
'use strict'

const { Kafka, CompressionTypes, CompressionCodecs, logLevel, Partitioners } = require('kafkajs')
const Cluster = require('kafkajs/src/cluster')
const socketFactory = require('kafkajs/src/network/socketFactory')
const { createLogger } = require('kafkajs/src/loggers')
const snappy = require('kafkajs-snappy')
const lz4 = require('lz4-napi')
const zstd = require('@mongodb-js/zstd')

CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: encoder => zstd.compress(encoder.buffer),
  decompress: buffer => zstd.decompress(buffer),
})

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

const toBytes = text => (text === null ? null : Buffer.from(text, 'base64'))
const toText = bytes => (bytes === null ? null : bytes.toString('base64'))
const print = line => process.stdout.write(JSON.stringify(line) + '\n')

const toMessage = record => {
  const headers = {}
  for (const [key, value] of record.headers) {
    headers[key] = [...(headers[key] || []), toBytes(value)]
  }
  return {
    partition: record.partition,
    timestamp: record.timestamp === null ? undefined : String(record.timestamp),
    key: toBytes(record.key),
    value: toBytes(record.value),
    headers,
  }
}

// A send is a batch per partition: cut the records where topic or codec change and where a partition's share is full.
const toSends = (records, batchBytes) => {
  const sends = []
  let current = null
  for (const record of records) {
    const bytes = (record.value || '').length
    const held = current === null ? 0 : current.bytes.get(record.partition) || 0
    if (current === null || record.topic !== current.topic || record.codec !== current.codec || (held && held + bytes > batchBytes)) {
      current = { topic: record.topic, codec: record.codec, records: [], bytes: new Map() }
      sends.push(current)
    }
    current.records.push(record)
    current.bytes.set(record.partition, (current.bytes.get(record.partition) || 0) + bytes)
  }
  return sends
}

const write = async (settings, records) => {
  const kafka = new Kafka({ brokers: [settings.bootstrap_servers], logLevel: logLevel.ERROR, logCreator: toStandardError })
  const producer = kafka.producer({
    idempotent: settings.idempotence,
    maxInFlightRequests: settings.in_flight,
    createPartitioner: Partitioners.DefaultPartitioner,
  })
  await producer.connect()
  const acknowledge = async send => {
    const answers = await producer.send({
      topic: send.topic,
      acks: -1,
      compression: CODECS[send.codec],
      messages: send.records.map(toMessage),
    })
    const next = new Map(answers.map(answer => [answer.partition, Number(answer.baseOffset)]))
    return send.records.map(({ topic, partition }) => {
      const offset = next.get(partition)
      next.set(partition, offset + 1)
      return { topic, partition, offset }
    })
  }
  // sends of one partition go one after another: kafkajs promises no order between sends under way together
  for (const send of toSends(records, settings.batch_bytes)) {
    for (const line of await acknowledge(send)) {
      print(line)
    }
  }
  await producer.disconnect()
}

const read = async (settings, spans) => {
  const cluster = new Cluster({
    brokers: [settings.bootstrap_servers],
    socketFactory: socketFactory(),
    logger: createLogger({ level: logLevel.ERROR, logCreator: toStandardError }),
    clientId: 'records',
    connectionTimeout: 5000,
    authenticationTimeout: 5000,
    reauthenticationThreshold: 10000,
    metadataMaxAge: 300000,
    retry: { retries: 5 },
    allowAutoTopicCreation: false,
  })
  await cluster.connect()
  await cluster.addMultipleTargetTopics([...new Set(spans.map(span => span.topic))])
  let unread = spans.map(span => ({ ...span, next: span.start })).filter(span => span.start < span.end)
  const deadline = Date.now() + settings.timeout_s * 1000
  while (unread.length > 0) {
    if (Date.now() > deadline) {
      throw new Error(`not all records arrived: ${JSON.stringify(unread)}`)
    }
    for (const [nodeId, wanted] of byLeader(cluster, unread)) {
      const broker = await cluster.findBroker({ nodeId })
      const topics = new Map()
      for (const span of wanted) {
        topics.set(span.topic, [...(topics.get(span.topic) || []), span])
      }
      const { responses } = await broker.fetch({
        maxWaitTime: 20,
        minBytes: 1,
        maxBytes: 10485760,
        isolationLevel: 0,
        topics: [...topics].map(([topic, parts]) => ({
          topic,
          partitions: parts.map(span => ({ partition: span.partition, fetchOffset: String(span.next), maxBytes: 1048576 })),
        })),
      })
      for (const { topicName, partitions } of responses) {
        for (const { partition, messages } of partitions) {
          const span = wanted.find(each => each.topic === topicName && each.partition === partition)
          for (const message of messages) {
            take(span, message)
          }
        }
      }
    }
    unread = unread.filter(span => span.next < span.end)
  }
  await cluster.disconnect()
}

const byLeader = (cluster, spans) => {
  const leaders = new Map()
  for (const span of spans) {
    const { leader } = cluster.findTopicPartitionMetadata(span.topic).find(each => each.partitionId === span.partition)
    leaders.set(leader, [...(leaders.get(leader) || []), span])
  }
  return leaders
}

const take = (span, message) => {
  const offset = Number(message.offset)
  if (offset < span.next || offset >= span.end) {
    return // before what was asked for, in the same batch, or behind its end
  }
  span.next = offset + 1
  print({
    topic: span.topic,
    partition: span.partition,
    offset,
    timestamp: Number(message.timestamp),
    key: toText(message.key),
    value: toText(message.value),
    headers: Object.entries(message.headers).flatMap(([key, value]) =>
      (Array.isArray(value) ? value : [value]).map(each => [key, toText(each)])
    ),
  })
}

const toStandardError = () => ({ namespace, level, log }) => console.error(namespace, level, JSON.stringify(log))

const main = async mode => {
  const chunks = []
  for await (const chunk of process.stdin) {
    chunks.push(chunk)
  }
  const [settings, ...lines] = Buffer.concat(chunks).toString().trimEnd().split('\n').map(line => JSON.parse(line))
  await { write, read }[mode](settings, lines)
}

main(process.argv[2]).catch(error => {
  console.error(error)
  process.exitCode = 1
  process.stdout.end(() => process.exit(1))
})
