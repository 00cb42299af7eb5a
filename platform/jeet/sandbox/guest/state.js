// `state`: the collections, what an event's end makes of them, and a batch's writes.

// The event's last act: live objects become text. Throws JsonError before anything is changed.
function settleLives() {
  for (let i = 0; i < shared[LIVES]; i++) {
    const value = tables.liveValue(i);
    if (value !== undefined) tables.settle(i, textOf(value, i));
  }
}

function textOf(value, i) {
  try {
    return jsonText(value, '', shared[VALUE_LIMIT], 'state_value_bytes');
  } catch (_unnamed) {
    const entry = tables.liveAt(i); // its name costs more than most texts, and only an error needs it
    return jsonText(value, place(entry.owner, entry.key), shared[VALUE_LIMIT], 'state_value_bytes');
  }
}

function openCollection(name) {
  const known = opened.get(name);
  if (known !== undefined) return known;
  if (!COLLECTION_NAME.test(name)) {
    throw new TypeError(
      `state has no collection ${stringify(name)}: a name is a letter, _ or $ followed by at most 62 letters, digits, _ or $`,
    );
  }
  requireEvent();
  const info = parse(decoder.decode(ask(OP_COLLECTION, { name })[0]));
  if (info.error !== undefined) throw new RangeError(info.error);
  const collection = new Collection(name, info);
  collections.push(collection);
  opened.set(name, collection);
  // From now on an own, read-only property: no trap on the way to the collection.
  defineProperty(state, name, { value: collection.table.object, writable: false, enumerable: true, configurable: false });
  return collection;
}

// Collections appear on first touch; the object below `state` stands in until then.
const unopened = new Proxy(create(null), {
  get(_target, name) {
    return typeof name === 'symbol' ? undefined : openCollection(name).table.object;
  },
  has(_target, name) {
    return typeof name !== 'symbol' && COLLECTION_NAME.test(name);
  },
  set(_target, name) {
    throw new TypeError(`state.${String(name)} is a collection and cannot be replaced: write state.${String(name)}[key] = value`);
  },
  defineProperty(_target, name) {
    throw new TypeError(`state.${String(name)} is a collection and cannot be defined`);
  },
  ownKeys() {
    return [];
  },
  getOwnPropertyDescriptor() {
    return undefined;
  },
  getPrototypeOf() {
    return null;
  },
});
const state = create(unopened);

function beginStateBatch(number, committed, now) {
  shared[BATCH] = number;
  shared[COMMITTED] = committed;
  shared[BATCH_TIME] = now;
  if (migrate !== null) {
    for (let c = 0; c < collections.length; c++) collections[c].older.clear();
  }
  tables.beginBatch();
}

// The batch's writes: for each collection the last value of each key that changed.
function collectWrites(header, sections) {
  for (let c = 0; c < collections.length; c++) {
    const collection = collections[c];
    const writes = collection.table.writes();
    if (writes === null) continue;
    header.push([collection.id, writes[0], writes[1], writes[2]]);
    sections.push(writes[3], writes[4], writes[5], writes[6]);
  }
}

// Which event of this batch changed an entry last: the host asks when it refuses what the entry holds.
function changedBy(id, key) {
  for (let c = 0; c < collections.length; c++) {
    if (collections[c].id === id) {
      const entry = collections[c].table.find(key);
      return entry === undefined ? -1 : entry.changedBy;
    }
  }
  return -1;
}
