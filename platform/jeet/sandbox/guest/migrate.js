// `export function migrate(collection, key, value, fromVersion)`: what an earlier version of the function has written comes
// to the code in the form that this version knows.
//
// Promise: it runs when the first event reads the entry, and what it returns is that event's write: it is committed with the
// event, or undone with it. If it throws, the event fails, caught or not, and the entry is as it was.
//
// Until then the entry stays unknown to its table, and what the host has told of it is kept aside, for as long as a batch.

let migrate = null;
let migrating = false;

function useMigrate() {
  const exported = moduleExports === null ? undefined : moduleExports.migrate;
  if (exported === undefined) return;
  if (typeof exported !== 'function') {
    throw new TypeError(`migrate must be a function (collection, key, value, fromVersion) => …, not ${describeType(exported)}`);
  }
  migrate = exported;
}

// The keys to ask the host for, of a collection in which some entries may be of an earlier version. On either kind of tables.
class Sought extends Wanted {
  constructor(collection, entry) {
    super(collection.table, entry);
    this.collection = collection;
  }

  request(id) {
    const keys = [];
    for (let i = 0; i < this.entries.length; i++) keys.push(this.entries[i].key);
    return encoder.encode(stringify({ c: id, k: keys }));
  }

  take(expiries, values, versions) {
    const { entries, collection } = this;
    const texts = decoder.decode(values).split('\n');
    if (texts.length !== entries.length) return -1;
    for (let i = 0; i < entries.length; i++) {
      if (entries[i].kind === UNKNOWN) learn(collection, entries[i], texts[i], expiries === null ? null : expiries[i], versions === null ? null : versions[i]);
    }
    return values.length;
  }
}

function learn(collection, entry, text, expires, version) {
  if (version === null || migrate === null || collection.ofOperator) tables.fill(entry, text, expires);
  else collection.older.set(entry.key, { text, expires, version });
}

// Makes an entry known of which only the old form is; nothing if it is known already.
function renew(collection, entry) {
  if (entry.kind !== UNKNOWN) return;
  const { key } = entry;
  const old = collection.older.get(key);
  if (expired(old)) {
    tables.fill(entry, '', null);
    return;
  }
  const serial = shared[SERIAL];
  try {
    let value;
    migrating = true;
    shared[SERIAL] = 0; // state is out of reach
    try {
      value = migrate(collection.name, key, parse(old.text), old.version);
    } finally {
      shared[SERIAL] = serial;
      migrating = false;
    }
    if (isThenable(value)) throw new TypeError('it must return the value itself, not a promise');
    if (value === undefined || value === null) {
      tables.touch(entry);
      tables.putAbsent(entry);
    } else {
      assign(collection, key, value);
      if (shared[LIVES] > 0) textOfLive(entry); // what JSON does not hold fails here
    }
  } catch (error) {
    const [message] = describeError(error);
    const failure = new Error(`migrate failed for ${place(collection, key)}, written by version ${old.version}: ${message}`);
    // Whoever catches this and goes on meets it again: at the entry, and at the event's end, when it is to become text.
    const fails = () => { throw failure; };
    tables.putLive(entry, new Proxy(create(null), {
      get: fails, set: fails, has: fails, getPrototypeOf: fails, deleteProperty: fails, ownKeys: fails, getOwnPropertyDescriptor: fails, defineProperty: fails,
    }));
    throw failure;
  }
}

function textOfLive(entry) {
  if (entry.kind === TEXT && entry.live !== undefined) jsonText(entry.live, place(entry.owner, entry.key), shared[VALUE_LIMIT], 'state_value_bytes');
}
