"""Turns members that md wrote into maps: what lies where, as text.

    derive.py numbers FILE SECTORS     write the file of numbered sectors
    derive.py maps SHARE OUT           read SHARE's members, write OUT/LEVEL.txt

Every array sector has contents of its own, so whatever a member's sector holds is known by looking: data by
its number, P by being the exclusive or of the row's data, Q by being their Reed-Solomon sum, computed here
from the definition. Anything else stops the script. Nothing is taken from a table of layouts.
"""

import hashlib
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

SECTOR = 512
ZERO = bytes(SECTOR)
P, Q, UNUSED = "P", "Q", "-"


@cache
def contents(number):
    return hashlib.sha512(b"array sector %d" % number).digest() * (SECTOR // 64)


def xor(left, right):
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(len(left), "big")


def times_g(byte):
    return (byte << 1) ^ (0x11D if byte & 0x80 else 0)


TIMES_G = bytes(times_g(byte) for byte in range(256))


def p_of(blocks):
    total = ZERO
    for block in blocks:
        total = xor(total, block)
    return total


def q_of(blocks, exponents):
    total = ZERO
    for block, exponent in zip(blocks, exponents):
        for _ in range(exponent):
            block = block.translate(TIMES_G)
        total = xor(total, block)
    return total


def md_exponents(slots, q, disks):
    """Data counted from the member after Q, round to it again."""
    order = sorted(slots, key=lambda slot: (slot - q - 1) % disks)
    return [order.index(slot) for slot in slots]


def ddf_exponents(slots, _q, _disks):
    """Members counted from the first, parity too."""
    return list(slots)


class Array:
    def __init__(self, line, array_sectors, members):
        level, layout, disks, chunk, sizes = line.split()
        self.level, self.layout = level, int(layout, 0)
        self.disks, self.chunk = int(disks), int(chunk)
        self.sizes = [2 * int(size) for size in sizes.split(",")]
        self.array_sectors, self.members = array_sectors, members
        self.places = [self.data_places(slot) for slot in range(self.disks)]
        self.exponents = []
        if self.level in ("raid4", "raid5", "raid6"):
            self.find_parity()

    def member_sectors(self, slot):
        return self.sizes[slot] if len(self.sizes) > 1 else self.sizes[0]

    def block(self, slot, sector):
        return self.members[slot][sector * SECTOR : (sector + 1) * SECTOR]

    def data_places(self, slot):
        numbers = {contents(number): number for number in range(self.array_sectors)}
        numbers[ZERO] = UNUSED
        beyond = self.members[slot][self.member_sectors(slot) * SECTOR :]
        assert not any(beyond), "md wrote beyond the member's size"
        return [numbers.get(self.block(slot, sector)) for sector in range(self.member_sectors(slot))]

    def find_parity(self):
        for sector in range(self.member_sectors(0)):
            row = [places[sector] for places in self.places]
            unknown = [slot for slot, place in enumerate(row) if place is None]
            data = [slot for slot, place in enumerate(row) if isinstance(place, int)]
            if not data:
                assert not unknown, f"parity of nothing in sector {sector}"
                continue
            blocks = [self.block(slot, sector) for slot in data]
            assert len(unknown) + len(data) == self.disks, "a parity of one block looks like data"
            (p,) = [slot for slot in unknown if self.block(slot, sector) == p_of(blocks)]
            self.places[p][sector] = P
            if self.level == "raid6":
                (q,) = [slot for slot in unknown if slot != p]
                self.places[q][sector] = Q
                self.find_exponents(sector, data, blocks, q)
            assert all(places[sector] is not None for places in self.places)

    def find_exponents(self, sector, data, blocks, q):
        found = {
            tuple(zip(data, rule(data, q, self.disks)))
            for rule in (md_exponents, ddf_exponents)
            if q_of(blocks, rule(data, q, self.disks)) == self.block(q, sector)
        }
        (exponents,) = found
        if sector % self.chunk:
            assert self.exponents[-1] == dict(exponents), "exponents changed inside a row"
        else:
            self.exponents.append(dict(exponents))

    def text(self):
        sizes = " ".join(map(str, self.sizes))
        yield f"array level={self.level} layout={self.layout:#x} raid_disks={self.disks}"
        yield f"chunk_sectors={self.chunk} array_sectors={self.array_sectors} member_sectors={sizes}"
        for slot, places in enumerate(self.places):
            yield f"slot {slot}: " + " ".join(runs(places))
        for row, exponents in enumerate(self.exponents):
            powers = (str(exponents.get(slot, UNUSED)) for slot in range(self.disks))
            yield f"exponents {row}: " + " ".join(powers)


def runs(places):
    """first+length of every run of consecutive numbers, or of one kind."""
    begin = 0
    for end in range(1, len(places) + 1):
        first, length = places[begin], end - begin
        follows = first + length if isinstance(first, int) else first
        if end == len(places) or places[end] != follows:
            yield f"{first}+{length}"
            begin = end


def write_maps(share, out):
    kernel = (share / "kernel").read_text().strip()
    maps = defaultdict(list)
    for number, line in enumerate((share / "arrays.txt").read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        sectors = int((share / f"{number}.size").read_text())
        disks = int(line.split()[2])
        members = [(share / f"{number}.{slot}").read_bytes() for slot in range(disks)]
        array = Array(line, sectors, members)
        maps[array.level].append("\n".join(array.text()) + "\n")
    for level, arrays in maps.items():
        head = f"# What md of Linux {kernel} wrote where. Made by tools/make-layout-fixtures.sh, which says how to read it.\n\n"
        (out / f"{level}.txt").write_text(head + "\n".join(arrays))


def main(arguments):
    match arguments:
        case ["numbers", file, sectors]:
            Path(file).write_bytes(b"".join(map(contents, range(int(sectors)))))
        case ["maps", share, out]:
            write_maps(Path(share), Path(out))
        case _:
            sys.exit(__doc__)


main(sys.argv[1:])
