// Events from standard input to Kafka, by kafkajs: node with_kafkajs.js SERVERS TOPIC < events.jsonl
"use strict";
const readline = require("readline");
const { Kafka, Partitioners, logLevel } = require("kafkajs");

const [servers, topic] = process.argv.slice(2);
const BATCH = 1000; // events of one request

async function main() {
  const kafka = new Kafka({ clientId: "shop", brokers: servers.split(","), logLevel: logLevel.ERROR });
  const clicks = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await clicks.connect();
  let messages = [];
  // acks: -1 waits for all replicas in sync.
  const send = async () => {
    if (messages.length) await clicks.send({ topic, acks: -1, messages });
    messages = [];
  };
  for await (const line of readline.createInterface({ input: process.stdin })) {
    messages.push({ key: JSON.parse(line).model, value: line });
    if (messages.length === BATCH) await send();
  }
  await send();
  await clicks.disconnect();
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
