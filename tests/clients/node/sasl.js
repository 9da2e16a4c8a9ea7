// kafkajs writes a record as a user and reads the offsets: `node sasl.js SERVERS MECHANISM USER PASSWORD TOPIC [CA]`.
// With the certificate of an authority, it uses TLS.
'use strict'

const { readFileSync } = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')

const main = async ([servers, mechanism, username, password, topic, ca]) => {
  const kafka = new Kafka({
    brokers: servers.split(','),
    ssl: ca ? { ca: [readFileSync(ca)] } : false,
    sasl: { mechanism: mechanism.toLowerCase(), username, password },
    retry: { retries: 2 },
    logLevel: logLevel.NOTHING,
  })
  const producer = kafka.producer()
  await producer.connect()
  const [{ baseOffset }] = await producer.send({ topic, messages: [{ value: mechanism }] })
  await producer.disconnect()
  const admin = kafka.admin()
  await admin.connect()
  const [{ high }] = await admin.fetchTopicOffsets(topic)
  await admin.disconnect()
  if (Number(high) <= Number(baseOffset)) throw new Error(`offset ${baseOffset} of ${high}`)
  process.stdout.write(`wrote ${mechanism}\n`)
}

main(process.argv.slice(2)).catch(error => {
  process.stderr.write(`${error.name}: ${error.message}\n`)
  process.exitCode = 1
})
