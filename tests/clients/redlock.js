// node-redlock 4 and 5 on ioredis, with the cluster as their only instance; a node dies in the middle.
//
// Both live through the same story: a second client is refused while the lock is held, an extension works, one that waits gets the lock when it is released and not
// before, and who lost it can release nothing. Then both hold a lock, with somebody waiting, while the node dies; and clients of two nodes read, add and write a
// counter below each lock, which only mutual exclusion keeps right.
//
// Arguments: the ports of the nodes. It writes `kill` when the node of the last port is to die, and goes on when it reads a line.

const assert = require("node:assert");
const Redis = require("ioredis");
const { default: Redlock5, ExecutionError } = require("redlock5");
const Redlock4 = require("redlock4");

const TTL = 300_000; // Nothing here may run out by itself.
const PATIENCE = { retryCount: 6000, retryDelay: 10, retryJitter: 10 };
const AT_ONCE = { retryCount: 0 };

const ports = process.argv.slice(2).map(Number);
const clients = ports.slice(0, 2).map((port) => new Redis(port));

const versions = [
  {
    name: "redlock 4",
    take: (client, key, patience) => new Redlock4([client], patience).lock(key, TTL),
    extend: (lock) => lock.extend(TTL),
    release: (lock) => lock.unlock(),
    refusal: Redlock4.LockError,
  },
  {
    name: "redlock 5",
    take: (client, key, patience) => new Redlock5([client], patience).acquire([key], TTL),
    extend: (lock) => lock.extend(TTL),
    release: (lock) => lock.release(),
    refusal: ExecutionError,
  },
];

// A lock held through one node, wanted and waited for through another.
async function hold(version, key) {
  const what = `${version.name}, ${key}`;
  let lock = await version.take(clients[0], key, AT_ONCE);
  let isTaken = false;
  const waiter = version.take(clients[1], key, PATIENCE).then((taken) => ((isTaken = true), taken));
  const refused = (why) =>
    Promise.all(clients.map((client) => assert.rejects(version.take(client, key, AT_ONCE), version.refusal, `${what}: ${why}`)));
  return {
    async isHeld() {
      await refused("held");
      lock = await version.extend(lock);
      assert.equal(isTaken, false, `${what}: got by the one that waits, before its release`);
    },
    async isHandedOver() {
      await version.release(lock);
      const next = await waiter;
      await assert.rejects(async () => version.release(lock), version.refusal, `${what}: released by who has it no more`);
      await refused("handed over");
      await version.release(next);
      await version.release(await version.take(clients[0], key, AT_ONCE));
    },
  };
}

// A number that clients of two nodes read, add to, and write below a lock.
function count(version) {
  const key = `count:${version.name}`;
  let done = 0;
  let isOver = false;
  let failure;
  const work = async (client) => {
    while (!isOver) {
      const lock = await version.take(client, `guard:${version.name}`, PATIENCE);
      await client.set(key, Number(await client.get(key)) + 1);
      done += 1;
      await version.release(lock);
    }
  };
  const working = Promise.all(clients.map(work)).catch((error) => (failure = error));
  return {
    async goesOn() {
      const wanted = done + 4;
      while (done < wanted && !failure) await new Promise((resolve) => setTimeout(resolve, 10));
      assert.ifError(failure);
    },
    async isRight() {
      isOver = true;
      await working;
      assert.ifError(failure);
      assert.equal(Number(await clients[0].get(key)), done, `${version.name}: a counter below its lock`);
    },
  };
}

(async () => {
  for (const version of versions) {
    const lock = await hold(version, "calm");
    await lock.isHeld();
    await lock.isHandedOver();
  }
  const held = await Promise.all(versions.map((version) => hold(version, `stormy:${version.name}`)));
  const counters = versions.map(count);
  for (const lock of held) await lock.isHeld();
  for (const counter of counters) await counter.goesOn();
  console.log("kill");
  await new Promise((resolve) => process.stdin.once("data", resolve));
  for (const lock of held) {
    await lock.isHeld();
    await lock.isHandedOver();
  }
  for (const counter of counters) await counter.goesOn();
  for (const counter of counters) await counter.isRight();
  console.log("done");
  process.exit(0);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
