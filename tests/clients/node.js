// ioredis and node-redis against a cluster: plain, pipelines, MULTI, pub/sub; a node dies in the middle.
//
// Arguments: the ports of the nodes. It writes `kill` when the node of the last port is to die, and goes on when it reads a line.

const assert = require("node:assert");
const Redis = require("ioredis");
const { createClient } = require("redis");

const ports = process.argv.slice(2).map(Number);

async function withIoredis() {
  const [one, two] = [new Redis(ports[0]), new Redis(ports[1])];
  await one.flushall();
  assert.equal(await one.set("a", "1"), "OK");
  assert.equal(await two.get("a"), "1");
  assert.deepEqual(await one.pipeline().incr("n").incr("n").exec(), [[null, 1], [null, 2]]);
  assert.deepEqual(await one.multi().incr("n").get("n").exec(), [[null, 3], [null, "3"]]);
  await one.hset("h", { f: "1" });
  assert.deepEqual(await two.hgetall("h"), { f: "1" });
  const listener = new Redis(ports[0]);
  const heard = new Promise((resolve) => listener.on("message", (channel, text) => resolve([channel, text])));
  await listener.subscribe("c");
  await two.publish("c", "hello");
  assert.deepEqual(await heard, ["c", "hello"]);
  for (const client of [one, two, listener]) client.disconnect();
}

async function withNodeRedis() {
  for (const RESP of [2, 3]) {
    const [one, two] = await Promise.all(
      [0, 1].map((n) => createClient({ socket: { port: ports[n] }, RESP }).connect()),
    );
    await one.flushAll();
    assert.equal(await one.set("a", "1"), "OK");
    assert.equal(await two.get("a"), "1");
    assert.deepEqual(await one.multi().incr("n").get("n").exec(), [1, "1"]);
    await one.hSet("h", { f: "1" });
    assert.deepEqual({ ...(await two.hGetAll("h")) }, { f: "1" });
    const listener = await createClient({ socket: { port: ports[0] }, RESP }).connect();
    let tell;
    const heard = new Promise((resolve) => (tell = resolve));
    await listener.subscribe("c", tell);
    assert.equal(await two.publish("c", "hello"), 0);
    assert.equal(await heard, "hello");
    await listener.unsubscribe("c");
    for (const client of [one, two, listener]) await client.close();
  }
}

async function whileANodeDies() {
  const client = new Redis(ports[0], { maxRetriesPerRequest: 0 });
  await client.set("counter", "0");
  let count = 0;
  let isOver = false;
  const counting = (async () => {
    while (!isOver) {
      await client.incr("counter");
      count += 1;
    }
  })();
  console.log("kill");
  await new Promise((resolve) => process.stdin.once("data", resolve));
  const before = count;
  while (count <= before + 5) await Promise.race([counting, new Promise((resolve) => setTimeout(resolve, 5))]);
  isOver = true;
  await counting;
  assert.equal(Number(await client.get("counter")), count);
  client.disconnect();
}

(async () => {
  await withIoredis();
  await withNodeRedis();
  await whileANodeDies();
  console.log("done");
  process.exit(0);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
