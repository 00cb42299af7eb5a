"""The heap keeps what is in it: contents and neighbours survive any order of calls, and memory is used again."""

from __future__ import annotations

import itertools
import random

import pytest

from .host import Host, Maker

KIB = 1024


def resize(host: Host, pointer: int, old: int, new: int) -> int:
    return host.export("cabi_realloc", pointer, old, 1, new) & 0xFFFFFFFF


def pattern(number: int, size: int) -> bytes:
    return random.Random(number).randbytes(min(size, 64)).ljust(8, b"!") * (size // 8 + 1)


@pytest.mark.parametrize("seed", range(4))
def test_contents_survive_any_order_of_calls(maker: Maker, seed: int) -> None:
    rng = random.Random(seed)
    with maker.instance(memory_bytes=64 << 20) as host:
        blocks: dict[int, tuple[int, int]] = {}  # number -> pointer, size

        def size() -> int:
            kind = rng.random()
            return rng.randrange(1, 64 if kind < 0.4 else 5000 if kind < 0.9 else 1 << 18)

        for number in range(3000):
            action = rng.random()
            if action < 0.5 or not blocks:
                wanted = size()
                blocks[number] = (resize(host, 0, 0, wanted), wanted)
                chosen = number
            else:
                chosen = rng.choice(list(blocks))
                pointer, old = blocks[chosen]
                expected = pattern(chosen, old)[:old]
                assert host.get(pointer, old) == expected
                if action < 0.75 and len(blocks) < 300:
                    wanted = size()
                    moved = resize(host, pointer, old, wanted)
                    kept = min(old, wanted)
                    assert host.get(moved, kept) == expected[:kept]
                    blocks[chosen] = (moved, wanted)
                else:
                    host.export("jeet-free", pointer, old)
                    del blocks[chosen]
                    continue
            pointer, taken = blocks[chosen]
            assert pointer % 8 == 0
            host.memory.write(host.store, pattern(chosen, taken)[:taken], pointer)
        ranges = sorted((pointer, pointer + taken) for pointer, taken in blocks.values())
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))
        for number, (pointer, taken) in blocks.items():
            assert host.get(pointer, taken) == pattern(number, taken)[:taken]


def test_what_is_freed_in_any_order_is_one_block_again(maker: Maker) -> None:
    rng = random.Random(1)
    with maker.instance() as host:
        for _ in range(5):
            pointers = [resize(host, 0, 0, 40 * KIB) for _ in range(100)]
            full = host.memory.data_len(host.store)
            rng.shuffle(pointers)
            for pointer in pointers:
                host.export("jeet-free", pointer, 40 * KIB)
            whole = resize(host, 0, 0, 100 * 40 * KIB)
            assert host.memory.data_len(host.store) == full
            host.export("jeet-free", whole, 100 * 40 * KIB)


def test_the_last_block_grows_where_it_is(maker: Maker) -> None:
    with maker.instance() as host:
        pointer, size = resize(host, 0, 0, 100 * KIB), 100 * KIB
        resize(host, pointer, size, 32 << 20)
        before = host.memory.data_len(host.store)
        again = resize(host, pointer, 32 << 20, 48 << 20)
        assert host.memory.data_len(host.store) - before <= (16 << 20) + 5 * 64 * KIB
        assert again == pointer


def test_memory_that_the_host_refuses_is_no_end_of_the_heap(maker: Maker) -> None:
    with maker.instance(memory_bytes=8 << 20) as host:
        assert host.evaluate("globalThis.go = () => { new Uint8Array(16 << 20) }") == 0
        for _ in range(3):
            assert host.call("go") == 1
            assert "out of memory" in host.error
        pointer = resize(host, 0, 0, 1 << 20)
        assert resize(host, pointer, 1 << 20, 2 << 20)


def test_a_heap_beside_memory_that_somebody_else_grew_goes_on(maker: Maker) -> None:
    with maker.instance() as host:
        pointers = []
        for n in range(10):
            pointers.append(resize(host, 0, 0, 300 * KIB))
            host.memory.write(host.store, bytes([n]) * 300 * KIB, pointers[-1])
            host.memory.grow(host.store, 1)
            start = host.memory.data_len(host.store) - 64 * KIB
            host.memory.write(host.store, b"\xee" * 64 * KIB, start)
        resize(host, pointers[-1], 300 * KIB, 3 << 20)
        for n, pointer in enumerate(pointers[:-1]):
            assert host.get(pointer, 300 * KIB) == bytes([n]) * 300 * KIB
        assert host.run("console.log([1, 2, 3].map((x) => x * 2).join())") == "2,4,6\n"
