// Keyed state: `state.<collection>[key]` behaves like a plain object that has any string as key.
//
// Promise: after an event that fails, state is as before it; what the next event sees has gone through JSON, so warm
// and reloaded state are the same; expired values are never seen.
//
// A collection is a proxy over a map of entries, the cache. An entry is
//   UNKNOWN   not read yet (a write needs no read)      ABSENT   known not to exist, or deleted
//   PLAIN     a string, number, boolean or null         TEXT     an object, kept as JSON text
// Objects are parsed once an event ("live") and compared as text when the event ends, so that a mutation in place is
// kept. An entry is copied for the undo at its first change in an event.
//
// Any call may throw here: user code can come in with hardly any stack or memory left, catch the error and go on. So
// whatever calls something comes first, in an order that does no harm when cut off, and plain assignments come last.

const UNKNOWN = 0;
const ABSENT = 1;
const PLAIN = 2;
const TEXT = 3;

const MAX_ENUMERATED = 10000;
const SCAN_PAGE = 250;
const PREFETCH_KEYS = 10000;
const FIRST_PREFETCH_KEYS = 500; // until the size of this collection's values is known
const FETCH_BYTES = 4194304;
const EXACT_TIME_MARGIN_MS = 60; // the shared clock may be this late: near an expiry the host is asked

const COLLECTION_NAME = /^[A-Za-z_$][\w$]{0,62}$/;

// The running event. serial 0: none runs, and state may not be used.
let serial = 0;
let eventIndex = 0;
let eventTime = 0; // of event eventTimeOf
let eventTimeOf = 0;
let exactTimeOf = 0; // the event for which the host was asked
let lastEntry = null; // what the event touched last, for its dead letter
let lastCollection = null; // … when it enumerated, in event lastCollectionOf
let lastCollectionOf = 0;

// What the event changed. Most events change one number in one collection without a TTL: that one is in the slot.
let slotEntry = null;
let slotValue;
let slotChangedIn = 0;
const undone = []; // flat: entry and its six fields, for each other entry changed in this event
const lives = []; // entries with a live object in this event

const collections = []; // all collections touched by this instance
const opened = new Map(); // name → collection
const usage = { entries: 0, bytes: 0, maxEntries: 50000, maxBytes: 8388608 };
let batchNumber = 0;
let committedThrough = 0;
let batchTime = 0;
let valueLimit = 1048576;

class Entry {
  constructor(owner, key, keyText) {
    this.owner = owner;
    this.key = key;
    this.keyText = keyText;
    this.kind = UNKNOWN;
    this.value = undefined; // PLAIN: the value; TEXT: its JSON text
    this.changedIn = 0; // batch of the last change, 0 if none
    this.usedIn = batchNumber;
  }
}
// Fields that most entries never need start on the prototype.
Entry.prototype.live = undefined; // the object handed out in event liveSerial
Entry.prototype.liveSerial = 0;
Entry.prototype.assigned = 0; // serial of the event that assigned an object
Entry.prototype.expires = null;
Entry.prototype.touchedIn = 0; // batch in which only the expiry was moved
Entry.prototype.undoSerial = 0;
Entry.prototype.changedBy = -1; // index of the event of the last change
Entry.prototype.size = 0; // what the cache counts for it
Entry.prototype.sentIn = 0; // batch whose writes it is in: the lists of changes may hold an entry twice

class Collection {
  constructor(name, info) {
    this.name = name;
    this.id = info.id;
    this.ttl = info.ttl_ms;
    this.byAccess = info.refresh === 'access' && info.ttl_ms !== null;
    this.map = new Map();
    this.changed = []; // entries changed in this batch
    this.touched = [];
    this.recent = []; // entries changed in batches not known to be committed
    this.prefetchedIn = 0; // batch whose keys were all asked for
    this.rowsRead = 0;
    this.bytesRead = 0;
    this.field = null; // the event's field that names this collection's keys, once learned
    this.proxy = makeProxy(this);
  }
}

function requireEvent() {
  if (serial === 0) {
    throw new Error('state can be used only while an event is processed (await what you start before the event ends)');
  }
}

function saveForUndo(entry) {
  if (entry === slotEntry || entry.undoSerial === serial) return;
  undone.push(entry, entry.kind, entry.value, entry.expires, entry.changedIn, entry.touchedIn);
  entry.undoSerial = serial;
}

function undoAll() {
  if (slotEntry !== null) {
    slotEntry.kind = PLAIN;
    slotEntry.value = slotValue;
    slotEntry.changedIn = slotChangedIn;
    slotEntry = null;
  }
  for (let i = undone.length - 6; i >= 0; i -= 6) {
    const entry = undone[i];
    entry.kind = undone[i + 1];
    entry.value = undone[i + 2];
    entry.expires = undone[i + 3];
    entry.changedIn = undone[i + 4];
    entry.touchedIn = undone[i + 5];
    entry.undoSerial = 0;
  }
  undone.length = 0;
  for (let i = 0; i < lives.length; i++) dropLive(lives[i]);
  lives.length = 0;
}

function keepChanges() {
  slotEntry = null;
  if (undone.length > 0) undone.length = 0;
  if (lives.length > 0) {
    for (let i = 0; i < lives.length; i++) dropLive(lives[i]);
    lives.length = 0;
  }
}

function dropLive(entry) {
  entry.live = undefined;
  entry.liveSerial = 0;
  entry.assigned = 0;
}

function markChanged(collection, entry) {
  if (entry.changedIn !== batchNumber) {
    collection.changed.push(entry);
    collection.recent.push(entry);
    entry.changedIn = batchNumber;
  }
  entry.changedBy = eventIndex;
  if (collection.ttl !== null) entry.expires = batchTime + collection.ttl;
  else if (entry.expires !== null) entry.expires = null; // read with the expiry of a ttl that was taken away since
}

function expired(entry) {
  if (entry.expires === null) return false;
  if (eventTimeOf !== serial) {
    eventTime = shared[TIME];
    eventTimeOf = serial;
  }
  if (exactTimeOf !== serial && entry.expires > eventTime && entry.expires <= eventTime + EXACT_TIME_MARGIN_MS) {
    eventTime = parse(decoder.decode(ask(OP_TIME, null)[0])).now;
    exactTimeOf = serial;
  }
  return entry.expires <= eventTime;
}

function refreshOnAccess(collection, entry) {
  const fresh = batchTime + collection.ttl;
  if (entry.expires === null || fresh - entry.expires <= collection.ttl / 10) return;
  saveForUndo(entry);
  if (entry.touchedIn !== batchNumber) {
    collection.touched.push(entry);
    collection.recent.push(entry);
    entry.touchedIn = batchNumber;
  }
  entry.expires = fresh;
}

function newEntry(collection, key) {
  const entry = new Entry(collection, key, checkKey(key, `a key of state.${collection.name}`));
  collection.map.set(key, entry);
  usage.entries += 1;
  return entry;
}

// The entry of a key, read from the host if it is not known.
function find(collection, key) {
  requireEvent();
  let entry = collection.map.get(key);
  if (entry === undefined) {
    entry = newEntry(collection, key);
    lastEntry = entry;
    fetchMissing(collection, entry);
  } else {
    lastEntry = entry;
    if (entry.kind === UNKNOWN) fetchMissing(collection, entry);
  }
  entry.usedIn = batchNumber;
  return entry;
}

function isPresent(collection, entry) {
  if (entry.kind === ABSENT) return false;
  if (entry.expires !== null) {
    if (expired(entry)) return false;
    if (collection.byAccess) refreshOnAccess(collection, entry);
  }
  return true;
}

function thaw(entry) {
  if (entry.liveSerial === serial) return entry.live;
  const value = parse(entry.value);
  lives.push(entry);
  entry.live = value;
  entry.liveSerial = serial;
  return value;
}

function account(entry, size) {
  usage.bytes += size - entry.size;
  entry.size = size;
}

function store(entry, text, expires) {
  const { owner } = entry;
  owner.rowsRead += 1;
  owner.bytesRead += text.length;
  account(entry, text.length);
  const first = text.charCodeAt(0);
  const isText = first === 0x7b || first === 0x5b;
  const value = isText ? text : parse(text);
  if (expires !== null) entry.expires = expires;
  entry.value = value;
  entry.kind = isText ? TEXT : PLAIN;
}

// How many rows may be asked for at once, so that the answer stays near FETCH_BYTES.
function fetchable(collection, first, most) {
  if (collection.rowsRead < 100) return first;
  const rows = floor(FETCH_BYTES / (collection.bytesRead / collection.rowsRead + 1));
  return rows < 1 ? 1 : rows > most ? most : rows;
}

// Asks the host once for this key and for all keys that the rest of the batch will probably want.
function fetchMissing(collection, entry) {
  const wanted = [entry];
  if (collection.prefetchedIn !== batchNumber) {
    const most = fetchable(collection, FIRST_PREFETCH_KEYS, PREFETCH_KEYS);
    // If there are more than may be asked for at once, the next miss goes on from there.
    if (addLikely(collection, entry.key, wanted, most)) collection.prefetchedIn = batchNumber;
  }
  const names = [];
  for (let i = 0; i < wanted.length; i++) names.push(wanted[i].keyText);
  const [expiries, values] = askText(OP_READ, `{"c":${collection.id},"k":[${names.join(',')}]}`);
  const expiresAt = expiries.length > 0 ? parse(decoder.decode(expiries)) : null;
  const texts = decoder.decode(values).split('\n');
  if (texts.length !== wanted.length) throw new InternalFault('the host answered for other keys than asked');
  for (let i = 0; i < wanted.length; i++) {
    const text = texts[i];
    if (text === '') wanted[i].kind = ABSENT;
    else store(wanted[i], text, expiresAt === null ? null : expiresAt[i]);
  }
}

// Adds entries for keys that later events of this batch will ask for: the events' own keys if this key is its event's
// key, else the values of the field of the event that this key was taken from. False if there was no room for all.
function addLikely(collection, key, wanted, most) {
  const { map } = collection;
  const { count } = batch;
  if (key === batch.keyAt(eventIndex)) {
    for (let i = eventIndex + 1; i < count; i++) {
      const next = batch.keyAt(i);
      if (next === null || map.has(next)) continue;
      if (wanted.length >= most) return false;
      const text = batch.keyTextAt(i);
      if (text.length > keyLimit) continue;
      const entry = new Entry(collection, next, text);
      map.set(next, entry);
      usage.entries += 1;
      wanted.push(entry);
    }
    return true;
  }
  const event = batch.valueAt(eventIndex);
  if (event === null || typeof event !== 'object') return true;
  const field = fieldOf(collection, event, key);
  if (field === null) return true;
  for (let i = eventIndex + 1; i < count; i++) {
    const later = batch.valueAt(i);
    if (later === null || typeof later !== 'object') continue;
    const value = later[field];
    if (typeof value !== 'string' && typeof value !== 'number') continue;
    const next = `${value}`;
    if (map.has(next) || next.length * 3 > keyLimit) continue;
    if (wanted.length >= most) return false;
    wanted.push(newEntry(collection, next));
  }
  return true;
}

function fieldOf(collection, event, key) {
  const { field } = collection;
  if (field !== null && `${event[field]}` === key) return field;
  collection.field = null;
  const names = keysOf(event);
  for (let i = 0; i < names.length; i++) {
    const value = event[names[i]];
    if (value === key || (typeof value === 'number' && `${value}` === key)) {
      collection.field = names[i];
      break;
    }
  }
  return collection.field;
}

function compareByCodePoint(a, b) {
  // UTF-8 byte order is code point order, which differs from UTF-16 order only where surrogates meet other units.
  const length = a.length < b.length ? a.length : b.length;
  for (let i = 0; i < length; i++) {
    let x = a.charCodeAt(i);
    let y = b.charCodeAt(i);
    if (x === y) continue;
    if (x >= 0xd800 && y >= 0xd800) {
      x = x >= 0xe000 ? x - 0x800 : x + 0x2000;
      y = y >= 0xe000 ? y - 0x800 : y + 0x2000;
    }
    return x - y;
  }
  return a.length - b.length;
}

// All keys that this event can see, in key order: the host's pages under what is not committed yet.
function enumerate(collection) {
  requireEvent();
  lastEntry = null;
  lastCollection = collection;
  lastCollectionOf = serial;
  const names = new Set();
  let after = null;
  for (;;) {
    const limit = fetchable(collection, SCAN_PAGE, 1000);
    const [head, values] = ask(OP_SCAN, { c: collection.id, after, limit });
    const page = parse(decoder.decode(head));
    const texts = page.keys.length > 0 ? decoder.decode(values).split('\n') : [];
    for (let i = 0; i < page.keys.length; i++) {
      const key = page.keys[i];
      let entry = collection.map.get(key);
      if (entry === undefined) {
        entry = newEntry(collection, key);
        entry.usedIn = batchNumber;
        store(entry, texts[i], page.expires[i]);
      } else if (entry.kind === UNKNOWN) {
        store(entry, texts[i], page.expires[i]);
      }
      if (entry.kind !== ABSENT && !expired(entry)) names.add(key);
      after = key;
    }
    if (names.size > MAX_ENUMERATED || page.keys.length < limit) break;
  }
  const { recent } = collection;
  for (let i = 0; i < recent.length; i++) {
    const entry = recent[i];
    if (entry.kind === UNKNOWN) continue;
    if (entry.kind !== ABSENT && !expired(entry)) names.add(entry.key);
  }
  if (names.size > MAX_ENUMERATED) {
    throw new RangeError(
      `state.${collection.name} has more than ${MAX_ENUMERATED} keys: too many to enumerate in one event (read keys one by one)`,
    );
  }
  return Array.from(names).sort(compareByCodePoint);
}

// Traps close over what they need; the first lines of get and set are the way of a number in the cache.
function makeProxy(collection) {
  const { map, ttl } = collection;
  const proxy = new Proxy(create(null), {
    get(_target, key) {
      if (serial !== 0) {
        const known = map.get(key);
        if (known !== undefined && known.kind === PLAIN && known.expires === null) {
          lastEntry = known;
          known.usedIn = batchNumber;
          return known.value;
        }
      }
      if (typeof key === 'symbol') return undefined;
      const entry = find(collection, key);
      if (!isPresent(collection, entry)) return undefined;
      return entry.kind === PLAIN ? entry.value : thaw(entry);
    },

    set(_target, key, value, receiver) {
      if (typeof value === 'number' && ttl === null && serial !== 0 && receiver === proxy) {
        const known = map.get(key);
        if (known !== undefined && known.kind === PLAIN && known.expires === null && value <= MAX_INTEGER && value >= -MAX_INTEGER) {
          lastEntry = known;
          if (known !== slotEntry) {
            if (slotEntry === null && known.undoSerial !== serial) {
              slotEntry = known;
              slotValue = known.value;
              slotChangedIn = known.changedIn;
            } else {
              saveForUndo(known);
            }
          }
          if (known.changedIn !== batchNumber) markChanged(collection, known);
          known.value = value + 0; // -0 is 0 in JSON
          return true;
        }
      }
      return setSlowly(collection, key, value, receiver);
    },

    has(_target, key) {
      if (typeof key === 'symbol') return false;
      return isPresent(collection, find(collection, key));
    },

    deleteProperty(_target, key) {
      if (typeof key === 'symbol') return true;
      const entry = target(collection, key);
      saveForUndo(entry);
      markChanged(collection, entry);
      entry.kind = ABSENT;
      entry.value = undefined;
      if (entry.expires !== null) entry.expires = null;
      if (entry.live !== undefined) dropLive(entry);
      return true;
    },

    ownKeys() {
      return enumerate(collection);
    },

    getOwnPropertyDescriptor(_target, key) {
      if (typeof key === 'symbol') return undefined;
      const entry = find(collection, key);
      if (!isPresent(collection, entry)) return undefined;
      const value = entry.kind === PLAIN ? entry.value : thaw(entry);
      return { value, writable: true, enumerable: true, configurable: true };
    },

    defineProperty(_target, key, descriptor) {
      if (typeof key === 'symbol' || !('value' in descriptor)) {
        throw new TypeError(`state.${collection.name} holds plain values: no accessors, no symbols`);
      }
      assign(collection, key, descriptor.value);
      return true;
    },

    getPrototypeOf() {
      return null;
    },

    setPrototypeOf(_target, prototype) {
      if (prototype === null) return true;
      throw new TypeError(`state.${collection.name} has no prototype to set: every string is a key`);
    },

    preventExtensions() {
      throw new TypeError(`state.${collection.name} cannot be frozen or sealed`);
    },
  });
  return proxy;
}

function setSlowly(collection, key, value, receiver) {
  if (typeof key === 'symbol') throw new TypeError(`state.${collection.name}: a key must be a string, not a symbol`);
  if (receiver !== collection.proxy) {
    defineProperty(receiver, key, { value, writable: true, enumerable: true, configurable: true });
    return true;
  }
  assign(collection, key, value);
  return true;
}

// The entry to write to: no read is needed.
function target(collection, key) {
  requireEvent();
  const entry = collection.map.get(key);
  const found = entry === undefined ? newEntry(collection, key) : entry;
  lastEntry = found;
  found.usedIn = batchNumber;
  return found;
}

function assign(collection, key, value) {
  const entry = target(collection, key);
  switch (typeof value) {
    case 'number':
      if (value - value !== 0 || value > MAX_INTEGER || value < -MAX_INTEGER || careful) checkNumber(value, place(collection, key));
      value += 0; // -0 is 0 in JSON
      break;
    case 'string':
      if (careful || value.length * 6 > valueLimit) jsonText(value, place(collection, key), valueLimit, 'state_value_bytes');
      account(entry, value.length);
      break;
    case 'boolean':
      break;
    default:
      if (value === null) break;
      if (typeof value !== 'object') checkDeep(value, place(collection, key), 0);
      saveForUndo(entry);
      if (entry.liveSerial !== serial) lives.push(entry);
      markChanged(collection, entry);
      entry.live = value;
      entry.liveSerial = serial;
      entry.assigned = serial;
      if (entry.kind !== TEXT) {
        entry.kind = TEXT;
        entry.value = '';
      }
      return;
  }
  saveForUndo(entry);
  markChanged(collection, entry);
  if (entry.live !== undefined) {
    entry.live = undefined;
    entry.assigned = 0;
  }
  entry.kind = PLAIN;
  entry.value = value;
}

function place(collection, key) {
  return `state.${collection.name}[${stringify(key)}]`;
}

// The event's last act: live objects become text. Throws JsonError before anything is changed.
function settleLives() {
  for (let i = 0; i < lives.length; i++) {
    const entry = lives[i];
    if (entry.kind !== TEXT || entry.liveSerial !== serial) continue;
    const collection = entry.owner;
    lastEntry = entry;
    const text = jsonText(entry.live, place(collection, entry.key), valueLimit, 'state_value_bytes');
    if (text !== entry.value || entry.assigned === serial) {
      saveForUndo(entry);
      account(entry, text.length);
      textLength += text.length;
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
  batchNumber = number;
  committedThrough = committed;
  batchTime = now;
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

function isSettled(entry) {
  return entry.changedIn <= committedThrough && entry.touchedIn <= committedThrough;
}

// Forgets clean entries, least recently read first, until the cache is at three quarters of its bounds.
function evict() {
  for (let age = 1; age >= 0; age--) {
    for (let c = 0; c < collections.length; c++) {
      const { map } = collections[c];
      for (const entry of map.values()) {
        if (usage.entries <= usage.maxEntries * 0.75 && usage.bytes <= usage.maxBytes * 0.75) return;
        if (!isSettled(entry) || entry.usedIn > batchNumber - 1 - age) continue;
        map.delete(entry.key);
        usage.entries -= 1;
        account(entry, 0);
      }
    }
  }
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
      if (entry.changedIn !== batchNumber || entry.sentIn === batchNumber) continue;
      entry.sentIn = batchNumber;
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
      if (entry.touchedIn !== batchNumber || entry.sentIn === batchNumber) continue;
      entry.sentIn = batchNumber;
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
