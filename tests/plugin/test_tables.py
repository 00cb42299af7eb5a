"""The tables of keyed state against plain objects, by themselves and while memory runs out."""

from __future__ import annotations

import pytest

from .host import Host, Maker

# A host of one map, and events that change state at random: what they see and what is left must be what plain objects
# say, whichever allocation fails. An event that fails is undone, and so is the model's.
EVENTS = r"""
const { stateTables, eventWords } = Javy.Jeet;
const words = eventWords();
const [SERIAL, INDEX, BATCH, COMMITTED, BATCH_TIME, VALUE_LIMIT, KEY_LIMIT] = [4, 6, 7, 8, 9, 12, 13];
words[VALUE_LIMIT] = 1e6;
words[KEY_LIMIT] = 100;
const ABSENT = 1, PLAIN = 2;
const text = new TextEncoder();
const stored = { __proto__: null };
const find = (owner, key) => {
  let entry = owner.table.find(key);
  if (entry === undefined) entry = owner.table.add(key, JSON.stringify(key));
  tables.touch(entry);
  if (entry.kind === 0) {
    const wanted = tables.wanted(owner.table, entry);
    wanted.addLines(owner.lines, 0, 5);
    const asked = JSON.parse(new TextDecoder().decode(wanted.request(1))).k;
    if (wanted.take(null, text.encode(asked.map((k) => stored[k] ?? '').join('\n'))) < 0) throw new Error('other keys');
  }
  return entry;
};
const tables = stateTables({
  get(owner, key) {
    const entry = find(owner, key);
    return entry.kind === ABSENT ? undefined : entry.kind === PLAIN ? entry.value : tables.thaw(entry);
  },
  set(owner, key, value) {
    const entry = find(owner, key);
    if (typeof value === 'object' && value !== null) tables.putLive(entry, value);
    else tables.putPlain(entry, value);
    return true;
  },
  has: (owner, key) => find(owner, key).kind !== ABSENT,
  deleteProperty(owner, key) { tables.putAbsent(find(owner, key)); return true; },
  ownKeys(owner) {
    const names = new Set(Object.keys(stored));
    for (const entry of owner.table.recent()) {
      if (entry.kind === ABSENT) names.delete(entry.key);
      else names.add(entry.key);
    }
    return [...names].filter((key) => find(owner, key).kind !== ABSENT).sort();
  },
  define() { throw new TypeError('no'); },
  setPrototypeOf() { throw new TypeError('no'); },
  preventExtensions() { throw new TypeError('no'); },
});
tables.bounds(6, 1e6);
const owner = { lines: text.encode('"a"\nnull\n"é"\n"1"\n"k3"\n"b\\n"') };
owner.table = tables.open(owner, null, false);
const state = owner.table.object;

const KEYS = ['a', 'b\n', 'é', '1', '', '__proto__', 'k1', 'k2', 'k3', 'k4'];
let seed = 1;
const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
const VALUES = [1, -0, 1.5, 'x', 'é"\n', true, null, { n: [1] }, ['a', { b: 2 }], {}];
let model = { __proto__: null };
const same = (a, b) => {
  const [seen, wanted] = [JSON.stringify(a), JSON.stringify(b)];
  if (seen !== wanted) throw new Error(`${seen} is not ${wanted}`);
};

const step = (model, key, value) => {
  switch (random(7)) {
    case 0: case 1: state[key] = value; model[key] = JSON.parse(JSON.stringify(value)); break;
    case 2: delete state[key]; delete model[key]; break;
    case 3: same(state[key], model[key]); break;
    case 4: same(key in state, key in model); break;
    case 5: if (Array.isArray(state[key])) { state[key].push(7); model[key].push(7); } break;
    default: same(Object.keys(state), Object.keys(model).sort()); same({ __proto__: null, ...state }[key], model[key]);
  }
};

const event = (i) => {
  words[SERIAL] += 1;
  words[INDEX] = i;
  const copy = Object.assign({ __proto__: null }, JSON.parse(JSON.stringify(model)));
  const before = seed;
  try {
    for (let n = random(4); n >= 0; n--) step(copy, KEYS[random(KEYS.length)], VALUES[random(VALUES.length)]);
    if (random(5) === 0) throw new Error('as asked');
    for (let n = 0; ; n++) {
      if (tables.liveAt(n) === undefined) break;
      const value = tables.liveValue(n);
      if (value !== undefined) tables.settle(n, JSON.stringify(value));
    }
    tables.keepChanges();
    model = copy;
  } catch (error) {
    tables.undoAll();
    if (error.message !== 'out of memory' && error.message !== 'as asked') throw error;
    seed = before + 1;
  }
};

const batch = () => {
  words[BATCH] += 1;
  words[COMMITTED] = words[BATCH] - 1;
  tables.beginBatch();
  for (let i = 0; i < 6; i++) event(i);
  words[SERIAL] = 0;
};

const commit = () => {
  const writes = owner.table.writes();
  if (writes === null) return;
  const lines = (n) => {
    const found = new TextDecoder().decode(writes[n]);
    return found === '' ? [] : found.split('\n').map((line) => JSON.parse(line));
  };
  const keys = lines(3), values = lines(4), gone = lines(5);
  if (keys.length !== writes[0] || values.length !== writes[0] || gone.length !== writes[1]) throw new Error('counts');
  for (let i = 0; i < keys.length; i++) stored[keys[i]] = JSON.stringify(values[i]);
  for (const key of gone) delete stored[key];
};

globalThis.batch = batch;
globalThis.commit = commit;
globalThis.check = () => {
  commit();
  const sorted = (o) => Object.keys(o).sort().map((key) => [key, o[key]]);
  same(sorted(stored).map(([key, json]) => [key, JSON.parse(json)]), sorted(model));
  console.log(sorted(model).length);
};
"""


@pytest.fixture(scope="module")
def events(maker: Maker) -> bytes:
    with maker.instance() as host:
        return host.compile(EVENTS)


def load(host: Host, events: bytes) -> None:
    assert host.export("jeet-eval-module", host.put(events), len(events)) == 0, host.error


def call(host: Host, *names: str) -> None:
    for name in names:
        assert host.call(name) == 0, host.error


def test_tables_do_what_plain_objects_do(maker: Maker, events: bytes) -> None:
    with maker.instance() as host:
        load(host, events)
        for _ in range(400):
            call(host, "batch", "commit")
        call(host, "check")
        host.export("jeet-gc")
        host.export("initialize-runtime")  # all is given back
        assert host.run("console.log('alive')").endswith("alive\n")


def an_allocation_fails(maker: Maker, events: bytes, room: int) -> None:
    with maker.instance() as host:
        load(host, events)
        call(host, "batch", "commit", "batch", "commit")
        host.export("jeet-gc")
        host.export("jeet-memory-limit", host.export("jeet-memory-used") + room)
        assert host.call("batch") in (0, 1)
        host.export("jeet-memory-limit", 0)
        call(host, "check", "batch", "check")
        host.export("initialize-runtime")


def test_an_allocation_that_fails_leaves_no_half_change(maker: Maker, events: bytes) -> None:
    for room in range(-2_000, 12_000, 350):
        an_allocation_fails(maker, events, room)


@pytest.mark.torture
def test_every_allocation_may_fail_and_leaves_no_half_change(maker: Maker, events: bytes) -> None:
    for room in range(-6_000, 30_000, 24):
        an_allocation_fails(maker, events, room)
