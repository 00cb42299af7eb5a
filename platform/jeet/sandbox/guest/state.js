// `state`: the collections, what an event's end makes of them, and a batch's writes.

// The event's last act: live objects become text. Throws JsonError before anything is changed.
function settleLives() {
  for (let i = 0; i < lives.length; i++) {
    const entry = lives[i];
    if (entry.kind !== TEXT || entry.liveSerial !== shared[SERIAL]) continue;
    const collection = entry.owner;
    lastEntry = entry;
    const text = jsonText(entry.live, place(collection, entry.key), shared[VALUE_LIMIT], 'state_value_bytes');
    if (text !== entry.value || entry.assigned === shared[SERIAL]) {
      saveForUndo(entry);
      account(entry, text.length);
      shared[TEXT_LENGTH] += text.length;
      markChanged(collection, entry);
      const first = text.charCodeAt(0);
      if (first === 0x7b || first === 0x5b) {
        entry.value = text;
      } else {
        entry.value = parse(text); // a toJSON answered with a plain value
        entry.kind = PLAIN;
      }
    }
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
  defineProperty(state, name, { value: collection.proxy, writable: false, enumerable: true, configurable: false });
  return collection;
}

// Collections appear on first touch; the object below `state` stands in until then.
const unopened = new Proxy(create(null), {
  get(_target, name) {
    return typeof name === 'symbol' ? undefined : openCollection(name).proxy;
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
  for (let c = 0; c < collections.length; c++) {
    const collection = collections[c];
    if (collection.changed.length > 0) collection.changed = [];
    if (collection.touched.length > 0) collection.touched = [];
    const { recent } = collection;
    if (recent.length > 0) {
      collection.recent = recent.filter((entry) => !isSettled(entry));
    }
  }
  if (usage.entries > usage.maxEntries || usage.bytes > usage.maxBytes) evict();
}

// The batch's writes: for each collection the last value of each key that changed.
function collectWrites(header, sections) {
  for (let c = 0; c < collections.length; c++) {
    const collection = collections[c];
    if (collection.changed.length === 0 && collection.touched.length === 0) continue;
    const { changed, touched } = collection;
    const putKeys = [];
    const putValues = [];
    const deleteKeys = [];
    const touchedKeys = [];
    for (let i = 0; i < changed.length; i++) {
      const entry = changed[i];
      if (entry.changedIn !== shared[BATCH] || entry.sentIn === shared[BATCH]) continue;
      entry.sentIn = shared[BATCH];
      const { kind, value } = entry;
      if (kind === PLAIN) {
        putKeys.push(entry.keyText);
        putValues.push(typeof value === 'string' ? stringify(value) : `${value}`);
      } else if (kind === TEXT) {
        putKeys.push(entry.keyText);
        putValues.push(value);
      } else {
        deleteKeys.push(entry.keyText);
      }
    }
    for (let i = 0; i < touched.length; i++) {
      const entry = touched[i];
      if (entry.touchedIn !== shared[BATCH] || entry.sentIn === shared[BATCH]) continue;
      entry.sentIn = shared[BATCH];
      touchedKeys.push(entry.keyText);
    }
    if (putKeys.length + deleteKeys.length + touchedKeys.length === 0) continue;
    header.push([collection.id, putKeys.length, deleteKeys.length, touchedKeys.length]);
    sections.push(encoder.encode(putKeys.join('\n')), encoder.encode(putValues.join('\n')));
    sections.push(encoder.encode(deleteKeys.join('\n')), encoder.encode(touchedKeys.join('\n')));
  }
}

// Which event of this batch changed an entry last: the host asks when it refuses what the entry holds.
function changedBy(id, key) {
  for (let c = 0; c < collections.length; c++) {
    if (collections[c].id === id) {
      const entry = collections[c].map.get(key);
      return entry === undefined ? -1 : entry.changedBy;
    }
  }
  return -1;
}
