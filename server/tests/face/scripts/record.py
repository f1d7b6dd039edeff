#!/usr/bin/env python3
"""Asks a real redis-server 7.0 every script of `table.txt` in RESP2 and RESP3 and writes its replies, as bytes, to `recorded.txt`.

    redis-server --port 7777 --save '' & python3 server/tests/face/scripts/record.py 7777

A line of the table is a script, with \\n for a line end; `|` separates it from keys, a second `|` from arguments. Every line starts with an empty database.
"""
import pathlib
import socket
import sys


def read(stream):
    line = stream.readline()
    kind, rest = line[:1], line[1:-2]
    if kind in b"$=" and rest != b"-1":
        return line + stream.read(int(rest) + 2)
    if kind in b"*~>":
        return line + b"".join(read(stream) for _ in range(max(int(rest), 0)))
    if kind == b"%":
        return line + b"".join(read(stream) for _ in range(2 * int(rest)))
    return line


def ask(connection, stream, *words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    connection.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
    return read(stream)


def main():
    here = pathlib.Path(__file__).parent
    lines = [line for line in (here / "table.txt").read_text().splitlines() if line and not line.startswith("#")]
    out = []
    for protocol in (2, 3):
        connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        stream = connection.makefile("rb")
        ask(connection, stream, "HELLO", protocol)
        for line in lines:
            ask(connection, stream, "FLUSHALL")
            script, keys, args = (line.split(" | ") + ["", ""])[:3]
            keys, args = keys.split(), args.split()
            reply = ask(connection, stream, "EVAL", script.replace("\\n", "\n"), len(keys), *keys, *args)
            out.append(f"{protocol}\t{line}\t{reply.hex()}")
    (here / "recorded.txt").write_text("\n".join(out) + "\n")


main()
