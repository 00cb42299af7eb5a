// Keyed state: `state.<collection>[key]` behaves like a plain object that has any string as key.
//
// Promise: after an event that fails, state is as before it; what the next event sees has gone through JSON, so warm
// and reloaded state are the same; expired values are never seen.
//
// A collection is an object over a table of entries, the cache. The tables are C's where the plugin has them (state.c), whose
// objects do the common reads and writes by themselves and call what is in collection.js for the rest; else they are those
// of table.js, whose proxies do the same.

const MAX_ENUMERATED = 10000;
const SCAN_PAGE = 250;
const PREFETCH_KEYS = 10000;
const FIRST_PREFETCH_KEYS = 500; // until the size of this collection's values is known
const FETCH_BYTES = 4194304;
const EXACT_TIME_MARGIN_MS = 60; // the shared clock may be this late: near an expiry the host is asked

const COLLECTION_NAME = /^[A-Za-z_$][\w$]{0,62}$/;

let lastCollection = null; // what the event enumerated last, for its dead letter, in event lastCollectionOf
let lastCollectionOf = 0;

const tables = native === null ? tablesInJavaScript : native.stateTables(traps);
const collections = []; // all collections touched by this instance
const opened = new Map(); // name → collection

class Collection {
  constructor(name, info) {
    this.name = name;
    this.id = info.id;
    this.byAccess = info.refresh === 'access' && info.ttl_ms !== null;
    this.prefetchedIn = 0; // batch whose keys were all asked for
    this.rowsRead = 0;
    this.bytesRead = 0;
    this.likely = null; // of an operator: (key asked for, i) → what event i will probably ask for, or null
    this.field = null; // the event's field that names this collection's keys, once learned
    this.ofOperator = false; // an operator's own: its entries are never migrated
    this.older = new Map(); // key → what an earlier version wrote, of entries that are not known yet (migrate.js)
    this.table = tables.open(this, info.ttl_ms, this.byAccess);
  }
}

function requireEvent() {
  if (shared[SERIAL] === 0) {
    if (migrating) throw new Error('migrate gets the old value and returns the new one: it cannot use state');
    throw new Error('state can be used only while an event is processed (await what you start before the event ends)');
  }
}

function expired(entry) {
  const { expires } = entry;
  if (expires === null) return false;
  if (shared[EVENT_TIME_OF] !== shared[SERIAL]) {
    shared[EVENT_TIME] = shared[TIME];
    shared[EVENT_TIME_OF] = shared[SERIAL];
  }
  if (shared[EXACT_TIME_OF] !== shared[SERIAL] && expires > shared[EVENT_TIME] && expires <= shared[EVENT_TIME] + EXACT_TIME_MARGIN_MS) {
    shared[EVENT_TIME] = parse(decoder.decode(ask(OP_TIME, null)[0])).now;
    shared[EXACT_TIME_OF] = shared[SERIAL];
  }
  return expires <= shared[EVENT_TIME];
}

function newEntry(collection, key) {
  return collection.table.add(key, checkKey(key, `a key of state.${collection.name}`));
}

// The entry of a key, read from the host if it is not known.
function find(collection, key) {
  requireEvent();
  let entry = collection.table.find(key);
  if (entry === undefined) {
    entry = newEntry(collection, key);
    tables.touch(entry);
    askFor(collection, entry);
  } else {
    tables.touch(entry);
    if (entry.kind === UNKNOWN) askFor(collection, entry);
  }
  return entry;
}

function askFor(collection, entry) {
  if (!collection.older.has(entry.key)) fetchMissing(collection, entry);
  if (collection.older.size > 0) renew(collection, entry);
}

function isPresent(collection, entry) {
  if (entry.kind === ABSENT) return false;
  if (entry.expires !== null) {
    if (expired(entry)) return false;
    if (collection.byAccess) tables.refresh(entry);
  }
  return true;
}
