// Transactions with kafkajs under the contract of tests/clients/transactions.py: `node transactions.js BOOTSTRAP_SERVERS`.
'use strict'

const readline = require('readline')
const { Kafka, logLevel, Partitioners } = require('kafkajs')

const PATIENCE_MS = 90000
const servers = [process.argv[2]]
const producers = new Map()

const connect = requestTimeout => new Kafka({ brokers: servers, logLevel: logLevel.NOTHING, requestTimeout, enforceRequestTimeout: true })

const open = async command => {
  const producer = connect(command.request_timeout_ms).producer({
    transactionalId: command.transactional_id,
    transactionTimeout: command.timeout_ms,
    idempotent: true,
    maxInFlightRequests: 1,
    createPartitioner: Partitioners.DefaultPartitioner,
  })
  await producer.connect()
  // only the first transaction initialises the producer, which fences other instances
  producers.set(command.instance, { producer, next: await producer.transaction() })
}

const begin = async ({ instance }) => {
  const held = producers.get(instance)
  held.transaction = held.next || (await held.producer.transaction())
  held.next = null
}

const read = async command => {
  const found = Array.from({ length: command.partitions }, () => [])
  const left = new Set(found.keys())
  const consumer = connect(30000).consumer({
    groupId: `read-${command.topic}-${process.pid}`,
    readUncommitted: false,
    maxWaitTimeInMs: 20,
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [command.topic], fromBeginning: true })
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`not read to the end: ${JSON.stringify(found)}`)), PATIENCE_MS).unref()
    const eachMessage = async ({ partition, message }) => {
      const value = message.value.toString()
      if (value === command.last) {
        left.delete(partition)
        if (left.size === 0) {
          resolve()
        }
      } else {
        found[partition].push(value)
      }
    }
    consumer.run({ eachMessage }).catch(reject)
  })
  await consumer.disconnect()
  return found
}

const commands = {
  open,
  begin,
  read,
  write: ({ instance, topic, partition, values }) =>
    producers.get(instance).transaction.send({ topic, acks: -1, messages: values.map(value => ({ partition, value })) }),
  offsets: ({ instance, group, topic, partition, offset }) =>
    producers.get(instance).transaction.sendOffsets({
      consumerGroupId: group,
      topics: [{ topic, partitions: [{ partition, offset: String(offset) }] }],
    }),
  commit: ({ instance }) => producers.get(instance).transaction.commit(),
  abort: ({ instance }) => producers.get(instance).transaction.abort(),
  close: async ({ instance }) => producers.delete(instance),
}

const main = async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line)
    let answer = {}
    try {
      const values = await commands[command.do](command)
      answer = command.do === 'read' ? { values } : {}
    } catch (error) {
      answer = { error: `${error.type || error.name}: ${error.message}` }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  process.exit(0)
}

main()
