"""redis-py against a cluster: plain, RESP2 and RESP3, pipelines, WATCH, pub/sub; a node dies in the middle.

Arguments: the ports of the nodes. It writes `kill` when the node of the last port is to die, and goes on when it reads a line.
"""

import sys
import threading

import redis
from redis.cache import CacheConfig
from redis.connection import CacheProxyConnection

ports = [int(port) for port in sys.argv[1:]]


def check(got, expected, what):
    if got != expected:
        sys.exit(f"{what}: {got!r}, not {expected!r}")


def connect(port, protocol):
    return redis.Redis(port=port, protocol=protocol, decode_responses=True, socket_timeout=30)


for protocol in (2, 3):
    one, two = connect(ports[0], protocol), connect(ports[1], protocol)
    one.flushall()
    check(one.set("a", "1", ex=100), True, "SET EX")
    check(two.get("a"), "1", "GET on another node")
    check(90 <= two.ttl("a") <= 100, True, "TTL")
    check(one.hset("h", mapping={"f": "1", "g": "2"}), 2, "HSET")
    check(two.hgetall("h"), {"f": "1", "g": "2"}, "HGETALL")
    check(one.rpush("l", 1, 2, 3), 3, "RPUSH")
    check(two.lrange("l", 0, -1), ["1", "2", "3"], "LRANGE")
    check(sorted(one.scan_iter()), ["a", "h", "l"], "SCAN")
    check(one.pipeline(transaction=False).incr("n").incr("n").get("n").execute(), [1, 2, "2"], "pipeline")
    check(one.pipeline(transaction=True).incr("n").get("n").execute(), [3, "3"], "MULTI")
    with one.pipeline() as pipe:
        pipe.watch("n")
        two.set("n", "9")
        pipe.multi()
        pipe.set("n", "10")
        try:
            pipe.execute()
            sys.exit("WATCH missed a change on another node")
        except redis.WatchError:
            pass
    listener = one.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("c")
    listener.psubscribe("d*")
    check(listener.get_message(timeout=5), None, "the confirmation of SUBSCRIBE")
    two.publish("c", "hello")
    two.publish("dd", "there")
    heard = []
    while len(heard) < 2:
        message = listener.get_message(timeout=30)
        if message:
            heard.append(message["data"])
    check(heard, ["hello", "there"], "messages of another node")
    listener.close()
    if protocol == 3:
        # The library wants Redis 7.4 for its cache; 7.2 is announced, for the sake of other libraries.
        CacheProxyConnection.MIN_ALLOWED_VERSION = "7.2.0"
        caching = redis.Redis(
            port=ports[0], protocol=3, decode_responses=True, socket_timeout=30, cache_config=CacheConfig()
        )
        two.set("cached", "1")
        check([caching.get("cached") for _ in range(3)], ["1"] * 3, "reads of the cache")
        check(caching.get_cache().size, 1, "what is in the cache")
        two.set("cached", "2")
        two.get("cached")
        # Its connection has heard by the time it has the reply to something else, whichever node was written to.
        caching.get("something else")
        check(caching.get("cached"), "2", "a read of the cache after a write through another node")
        caching.close()
    # A script is known everywhere; the library's lock is made of three.
    add = one.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
    check([add(keys=["sum"], args=[2]), add(keys=["sum"], args=[3], client=two)], [2, 5], "a registered script")
    check(two.evalsha(add.sha, 1, "sum", 1), 6, "EVALSHA on another node")
    lock, other = one.lock("lock", timeout=60), two.lock("lock", timeout=60, blocking=False)
    check(lock.acquire(), True, "Lock.acquire")
    check(other.acquire(), False, "Lock.acquire of what is held")
    check([lock.extend(60), lock.reacquire(), lock.owned(), other.locked()], [True] * 4, "Lock.extend, reacquire")
    taken = threading.Event()
    waits = threading.Thread(target=lambda: two.lock("lock", timeout=60, sleep=0.01).acquire() and taken.set())
    waits.start()
    lock.release()
    check(taken.wait(60), True, "a Lock that waits for another node's")
    waits.join()
    try:
        lock.release()
        sys.exit("a lock was released that is somebody else's")
    except redis.exceptions.LockError:
        pass
    check(one.info("server")["redis_version"].startswith("7."), True, "INFO")
    check(one.client_setname(f"me{protocol}"), True, "CLIENT SETNAME")
    check([client["name"] for client in one.client_list() if client["name"] == f"me{protocol}"], [f"me{protocol}"], "CLIENT LIST")
    check(one.config_get("databases"), {"databases": "16"}, "CONFIG GET")

# Two of three nodes count up while the third dies: nothing that was answered is lost.
counts = [0, 0]
stop = threading.Event()


def count(index):
    client = connect(ports[index], 3)
    while not stop.is_set():
        client.incr(f"counter{index}")
        counts[index] += 1


threads = [threading.Thread(target=count, args=(index,)) for index in (0, 1)]
for thread in threads:
    thread.start()
print("kill", flush=True)
sys.stdin.readline()
before = list(counts)
while any(now <= old + 5 for now, old in zip(counts, before)):
    if not all(thread.is_alive() for thread in threads):
        sys.exit("a client failed when another node died")
stop.set()
for thread in threads:
    thread.join()
for index in (0, 1):
    check(int(connect(ports[0], 2).get(f"counter{index}")), counts[index], f"counter{index}")
print("done", flush=True)
