"""Locks that people already write, in Python, against a cluster; a node dies in the middle.

Each lives through the same story in its own words: a second client is refused while the lock is held, an extension works, one that waits gets the lock when it is
released and not before, and who lost it can release nothing. Then all of them hold a lock, with somebody waiting, while the node dies; and clients of two nodes
read, add and write a counter below each lock, which only mutual exclusion keeps right.

Arguments: the ports of the nodes. It writes `kill` when the node of the last port is to die, and goes on when it reads a line.
"""

import logging
import sys
import threading
import uuid
import warnings

import pottery
import redis
import redis_lock

PATIENCE = 120  # Seconds; for what must happen.
TTL = 300  # Seconds; nothing here may run out by itself.

warnings.simplefilter("ignore")  # DELEX is called experimental.
logging.disable(logging.WARNING)  # python-redis-lock warns of every lock that it does not get.
ports = [int(port) for port in sys.argv[1:]]
clients = [redis.Redis(port=port, decode_responses=True, socket_timeout=PATIENCE) for port in ports]


def check(got, expected, what):
    if got != expected:
        raise AssertionError(f"{what}: {got!r}, not {expected!r}")


def ends_badly(action, error):
    """Whether the lock refuses, as it tells it."""
    try:
        action()
    except error:
        return True
    return False


class RedisPy:
    """The lock of redis-py."""

    def __init__(self, client, key):
        # One thread waits, another releases.
        self.lock = client.lock(key, timeout=TTL, sleep=0.01, blocking_timeout=PATIENCE, thread_local=False)

    def take(self):
        return self.lock.acquire(blocking=False)

    def wait(self):
        return self.lock.acquire()

    def extend(self):
        check([self.lock.extend(TTL, replace_ttl=True), self.lock.reacquire(), self.lock.owned()], [True] * 3, "extend")

    def release(self):
        self.token = self.lock.local.token
        self.lock.release()

    def late_release_is_refused(self):
        # It forgets its token with the first release; the server is to be asked.
        self.lock.local.token = self.token
        return ends_badly(self.lock.release, redis.exceptions.LockNotOwnedError)


class PythonRedisLock:
    """python-redis-lock: waits with BLPOP for what the release pushes."""

    def __init__(self, client, key):
        self.lock = redis_lock.Lock(client, key, expire=TTL)

    def take(self):
        return self.lock.acquire(blocking=False)

    def wait(self):
        return self.lock.acquire(timeout=PATIENCE)

    def extend(self):
        self.lock.extend()

    def release(self):
        self.lock.release()

    def late_release_is_refused(self):
        return ends_badly(self.lock.release, redis_lock.NotAcquired)


class Pottery:
    """pottery's Redlock, with the cluster as its only master."""

    def __init__(self, client, key):
        self.lock = pottery.Redlock(key=key, masters={client}, auto_release_time=TTL, raise_on_redis_errors=True)

    def take(self):
        return self.lock.acquire(blocking=False)

    def wait(self):
        return self.lock.acquire(timeout=PATIENCE)

    def extend(self):
        self.lock.extend()
        check(self.lock.locked() > 0, True, "locked after extend")

    def release(self):
        self.lock.release()

    def late_release_is_refused(self):
        return ends_badly(self.lock.release, pottery.ReleaseUnlockedLock)


class Plain:
    """SET NX PX; how it is compared and extended and deleted, the children say."""

    def __init__(self, client, key):
        self.client, self.key, self.mine = client, key, uuid.uuid4().hex

    def take(self):
        return bool(self.client.set(self.key, self.mine, nx=True, px=TTL * 1000))

    def wait(self):
        tries = 0
        while not self.take():
            tries += 1
            check(tries < PATIENCE * 100, True, "a lock in time")
            threading.Event().wait(0.01)
        return True

    def extend(self):
        check(self.client.set(self.key, self.mine, ifeq=self.mine, px=TTL * 1000), True, "SET IFEQ")
        check(self.client.set(self.key, "x", ifeq="somebody else's", px=1), None, "SET IFEQ of another value")

    def release(self):
        check(self.delete(), 1, "the release")

    def late_release_is_refused(self):
        return self.delete() == 0


class DelIfEq(Plain):
    def delete(self):
        return self.client.execute_command("DELIFEQ", self.key, self.mine)


class DelEx(Plain):
    def delete(self):
        return self.client.delex(self.key, ifeq=self.mine)


class SetNx(Plain):
    """The oldest one: SETNX, and a script that compares and deletes."""

    COMPARED = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call({}) else return 0 end"

    def take(self):
        return self.client.setnx(self.key, self.mine)

    def extend(self):
        script = self.COMPARED.format("'pexpire', KEYS[1], ARGV[2]")
        check(self.client.eval(script, 1, self.key, self.mine, TTL * 1000), 1, "PEXPIRE in a script")

    def delete(self):
        return self.client.eval(self.COMPARED.format("'del', KEYS[1]"), 1, self.key, self.mine)


KINDS = [RedisPy, PythonRedisLock, Pottery, DelIfEq, DelEx, SetNx]


class Held:
    """A lock held through one node, wanted and waited for through another."""

    def __init__(self, kind, key):
        self.kind, self.key = kind, key
        self.what = f"{kind.__name__} {key}"
        self.holder, self.waiter = kind(clients[0], key), kind(clients[1], key)
        self.taken = threading.Event()
        check(self.holder.take(), True, f"{self.what}: a free lock")
        self.thread = threading.Thread(target=self.wait, daemon=True)
        self.thread.start()
        self.is_held()

    def wait(self):
        if self.waiter.wait():
            self.taken.set()

    def is_held(self):
        for client in clients[:2]:
            check(self.kind(client, self.key).take(), False, f"{self.what}: a lock that is held")
        self.holder.extend()
        check(self.taken.is_set(), False, f"{self.what}: got by the one that waits, before its release")

    def is_handed_over(self):
        self.holder.release()
        check(self.taken.wait(PATIENCE), True, f"{self.what}: got by the one that waits, after its release")
        check(self.holder.late_release_is_refused(), True, f"{self.what}: a release by who has it no more is refused")
        check(self.kind(clients[0], self.key).take(), False, f"{self.what}: a lock that was handed over")
        self.waiter.release()
        self.thread.join(PATIENCE)
        check(self.kind(clients[0], self.key).take(), True, f"{self.what}: a lock that was released")


class Counter:
    """A number that clients of two nodes read, add to, and write below a lock."""

    def __init__(self, kind):
        self.kind, self.key = kind, f"count:{kind.__name__}"
        self.counts = [0, 0]
        self.failure = None
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=self.work, args=(index,), daemon=True) for index in (0, 1)]
        for thread in self.threads:
            thread.start()

    def work(self, index):
        client = clients[index]
        try:
            while not self.is_over.is_set():
                lock = self.kind(client, f"guard:{self.kind.__name__}")
                check(lock.wait(), True, "the lock")
                client.set(self.key, int(client.get(self.key) or 0) + 1)
                self.counts[index] += 1
                lock.release()
        except Exception as error:  # It is told by who waits for the thread.
            self.failure = error

    def goes_on(self):
        wanted = sum(self.counts) + 4
        for _ in range(PATIENCE * 100):
            if self.failure or sum(self.counts) >= wanted:
                break
            threading.Event().wait(0.01)
        check(self.failure, None, f"{self.kind.__name__}: the failure of a client when another node died")
        check(sum(self.counts) >= wanted, True, f"{self.kind.__name__}: the counter goes on")

    def is_right(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join(PATIENCE)
        check(self.failure, None, f"{self.kind.__name__}: the failure of a client")
        check(int(clients[0].get(self.key)), sum(self.counts), f"{self.kind.__name__}: a counter below its lock")


for kind in KINDS:
    Held(kind, f"calm:{kind.__name__}").is_handed_over()

held = [Held(kind, f"stormy:{kind.__name__}") for kind in KINDS]
counters = [Counter(kind) for kind in KINDS]
for counter in counters:
    counter.goes_on()
print("kill", flush=True)
sys.stdin.readline()
for lock in held:
    lock.is_held()
    lock.is_handed_over()
for counter in counters:
    counter.goes_on()
for counter in counters:
    counter.is_right()
print("done", flush=True)
