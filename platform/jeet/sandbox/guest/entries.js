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

// The running event, beside the words of wire.js.
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

class Entry {
  constructor(owner, key, keyText) {
    this.owner = owner;
    this.key = key;
    this.keyText = keyText;
    this.kind = UNKNOWN;
    this.value = undefined; // PLAIN: the value; TEXT: its JSON text
    this.changedIn = 0; // batch of the last change, 0 if none
    this.usedIn = shared[BATCH];
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
  if (shared[SERIAL] === 0) {
    throw new Error('state can be used only while an event is processed (await what you start before the event ends)');
  }
}

function saveForUndo(entry) {
  if (entry === slotEntry || entry.undoSerial === shared[SERIAL]) return;
  undone.push(entry, entry.kind, entry.value, entry.expires, entry.changedIn, entry.touchedIn);
  entry.undoSerial = shared[SERIAL];
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
  if (entry.changedIn !== shared[BATCH]) {
    collection.changed.push(entry);
    collection.recent.push(entry);
    entry.changedIn = shared[BATCH];
  }
  entry.changedBy = shared[INDEX];
  if (collection.ttl !== null) entry.expires = shared[BATCH_TIME] + collection.ttl;
  else if (entry.expires !== null) entry.expires = null; // read with the expiry of a ttl that was taken away since
}

function expired(entry) {
  if (entry.expires === null) return false;
  if (eventTimeOf !== shared[SERIAL]) {
    eventTime = shared[TIME];
    eventTimeOf = shared[SERIAL];
  }
  if (exactTimeOf !== shared[SERIAL] && entry.expires > eventTime && entry.expires <= eventTime + EXACT_TIME_MARGIN_MS) {
    eventTime = parse(decoder.decode(ask(OP_TIME, null)[0])).now;
    exactTimeOf = shared[SERIAL];
  }
  return entry.expires <= eventTime;
}

function refreshOnAccess(collection, entry) {
  const fresh = shared[BATCH_TIME] + collection.ttl;
  if (entry.expires === null || fresh - entry.expires <= collection.ttl / 10) return;
  saveForUndo(entry);
  if (entry.touchedIn !== shared[BATCH]) {
    collection.touched.push(entry);
    collection.recent.push(entry);
    entry.touchedIn = shared[BATCH];
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
  entry.usedIn = shared[BATCH];
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
  if (entry.liveSerial === shared[SERIAL]) return entry.live;
  const value = parse(entry.value);
  lives.push(entry);
  entry.live = value;
  entry.liveSerial = shared[SERIAL];
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
