#!/usr/bin/env python3
"""Plots of `make bench-growth`: plot.py GROWTH.json DIRECTORY writes one SVG per section. Needs nothing but Python."""
import json
import math
import os
import sys
from statistics import median

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 40, 50
COLOURS = ["#1b6ca8", "#c8553d", "#3a7d44", "#7d5ba6", "#b08900"]
SECTIONS = {
    "nodes": ("Nodes", "nodes", False),
    "connections": ("Connections", "connections", True),
    "values": ("Length of values", "bytes", True),
    "keys": ("Keys", "keys", True),
    "reads": ("Share of reads", "percent of reads", False),
}


def short(number):
    for limit, letter in ((1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:g}{letter}"
    return f"{number:g}"


def bytes_or_number(x, unit):
    if unit != "bytes":
        return short(x)
    for limit, letter in ((1 << 20, " MiB"), (1 << 10, " KiB")):
        if x >= limit:
            return f"{x // limit}{letter}"
    return f"{x} B"


def decades(low, high):
    return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def plot(section, points):
    title, unit, is_log_x = SECTIONS[section]
    lines = {}
    for point in points:
        lines.setdefault(point["line"], {}).setdefault(point["x"], []).append(point["sample"]["rate"])
    lines = {name: sorted((x, median(rates)) for x, rates in by_x.items()) for name, by_x in lines.items()}
    xs = sorted({x for line in lines.values() for x, _ in line})
    rates = [rate for line in lines.values() for _, rate in line]
    ticks = decades(min(rates), max(rates))
    scale = math.log10 if is_log_x else float

    def across(x):
        low, high = scale(xs[0]), scale(xs[-1])
        return LEFT + (WIDTH - LEFT - RIGHT) * ((scale(x) - low) / (high - low) if high > low else 0.5)

    def up(rate):
        low, high = math.log10(ticks[0]), math.log10(ticks[-1])
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * ((math.log10(rate) - low) / (high - low))

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{title}: operations per second</text>',
    ]
    for tick in ticks:
        y = up(tick)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{short(tick)}</text>')
    for x in xs:
        place = across(x)
        out.append(f'<text x="{place:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{bytes_or_number(x, unit)}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{unit}</text>')
    for colour, (name, line) in zip(COLOURS, sorted(lines.items(), key=lambda item: -item[1][-1][1])):
        path = " ".join(f"{across(x):.1f},{up(rate):.1f}" for x, rate in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, rate in line:
            out.append(f'<circle cx="{across(x):.1f}" cy="{up(rate):.1f}" r="3" fill="{colour}"/>')
        x, rate = line[-1]
        out.append(f'<text x="{across(x) + 8:.1f}" y="{up(rate) + 4:.1f}" fill="{colour}">{name}: {short(round(rate, -2) or rate)}/s</text>')
    out.append("</svg>\n")
    return "\n".join(out)


def main():
    source, directory = sys.argv[1:3]
    with open(source) as file:
        points = json.load(file)
    os.makedirs(directory, exist_ok=True)
    for section in SECTIONS:
        chosen = [point for point in points if point["section"] == section]
        if chosen:
            path = os.path.join(directory, f"{section}.svg")
            with open(path, "w") as file:
                file.write(plot(section, chosen))
            print(f"written: {path}")


if __name__ == "__main__":
    main()
