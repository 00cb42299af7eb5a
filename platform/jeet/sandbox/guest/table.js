// The entries of state in JavaScript, for plugins that have no tables of their own; state.c is the same in C, with the same
// functions, and of the two one is used (entries.js). What is here knows nothing of the host and of JSON's rules.
//
// An entry is
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

class Entry {
  constructor(table, key, keyText) {
    this.table = table;
    this.key = key;
    this.keyText = keyText;
    this.kind = UNKNOWN;
    this.value = undefined; // PLAIN: the value; TEXT: its JSON text
    this.changedIn = 0; // batch of the last change, 0 if none
    this.usedIn = shared[BATCH];
  }

  get owner() {
    return this.table.owner;
  }
}
// Fields that most entries never need start on the prototype.
Entry.prototype.live = undefined; // the object handed out in this event
Entry.prototype.isLive = false; // is among the live ones of this event
Entry.prototype.assigned = 0; // serial of the event that assigned an object
Entry.prototype.expires = null;
Entry.prototype.touchedIn = 0; // batch in which only the expiry was moved
Entry.prototype.undoSerial = 0;
Entry.prototype.changedBy = -1; // index of the event of the last change
Entry.prototype.size = 0; // what the cache counts for it
Entry.prototype.sentIn = 0; // batch whose writes it is in: the lists of changes may hold an entry twice

class Table {
  constructor(owner, ttl, byAccess) {
    this.owner = owner;
    this.ttl = ttl;
    this.byAccess = byAccess;
    this.map = new Map();
    this.changed = []; // entries changed in this batch
    this.touched = [];
    this.changedLately = []; // entries changed in batches not known to be committed
    this.object = makeProxy(owner, this);
    allTables.push(this);
  }

  find(key) {
    return this.map.get(key);
  }

  add(key, keyText) {
    const entry = new Entry(this, key, keyText);
    this.map.set(key, entry);
    usage.entries += 1;
    return entry;
  }

  recent() {
    return this.changedLately;
  }

  // The batch's writes: the last value of each key that changed; null if there is nothing.
  writes() {
    const { changed, touched } = this;
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
    const counts = [putKeys.length, deleteKeys.length, touchedKeys.length];
    if (counts[0] + counts[1] + counts[2] === 0) return null;
    return [...counts, ...[putKeys, putValues, deleteKeys, touchedKeys].map((texts) => encoder.encode(texts.join('\n')))];
  }
}

const allTables = [];
const usage = { entries: 0, bytes: 0, maxEntries: 50000, maxBytes: 8388608 };

// What the event changed. Most events change one number in one collection without a TTL: that one is in the slot.
let slotEntry = null;
let slotValue;
let slotChangedIn = 0;
const undone = []; // flat: entry and its six fields, for each other entry changed in this event
const lives = []; // entries with a live object in this event
let touchedLast = null;
let touchedLastOf = 0;

function account(entry, size) {
  usage.bytes += size - entry.size;
  entry.size = size;
}

function isSettled(entry) {
  return entry.changedIn <= shared[COMMITTED] && entry.touchedIn <= shared[COMMITTED];
}

function dropLives() {
  for (let i = 0; i < lives.length; i++) {
    const entry = lives[i];
    entry.live = undefined;
    entry.isLive = false;
    entry.assigned = 0;
  }
  lives.length = 0;
  shared[LIVES] = 0;
}

function addLive(entry) {
  if (entry.isLive) return;
  lives.push(entry);
  entry.isLive = true;
  shared[LIVES] = lives.length;
}

function saveForUndo(entry) {
  if (entry === slotEntry || entry.undoSerial === shared[SERIAL]) return;
  undone.push(entry, entry.kind, entry.value, entry.expires, entry.changedIn, entry.touchedIn);
  entry.undoSerial = shared[SERIAL];
  shared[CHANGES] = 1;
}

function markChanged(entry) {
  const { table } = entry;
  if (entry.changedIn !== shared[BATCH]) {
    table.changed.push(entry);
    table.changedLately.push(entry);
    entry.changedIn = shared[BATCH];
  }
  entry.changedBy = shared[INDEX];
  if (table.ttl !== null) entry.expires = shared[BATCH_TIME] + table.ttl;
  else if (entry.expires !== null) entry.expires = null; // read with the expiry of a ttl that was taken away since
}

// The way of a number in the cache, in a collection without a TTL: whether it could be gone.
function setQuickly(entry, value) {
  if (entry.kind !== PLAIN || entry.expires !== null || !(value <= MAX_INTEGER && value >= -MAX_INTEGER)) return false;
  touchedLast = entry;
  touchedLastOf = shared[SERIAL];
  if (entry !== slotEntry) {
    if (slotEntry === null && entry.undoSerial !== shared[SERIAL]) {
      slotEntry = entry;
      slotValue = entry.value;
      slotChangedIn = entry.changedIn;
      shared[CHANGES] = 1;
    } else {
      saveForUndo(entry);
    }
  }
  if (entry.changedIn !== shared[BATCH]) markChanged(entry);
  entry.value = value + 0; // -0 is 0 in JSON
  return true;
}

// The keys to ask the host for, this one first.
class Wanted {
  constructor(table, entry) {
    this.table = table;
    this.entries = [entry];
  }

  get count() {
    return this.entries.length;
  }

  add(entry) {
    this.entries.push(entry);
  }

  // The keys of the lines from that one on which are not known yet: false if there was no room for all.
  addLines(column, from, most) {
    const { table, entries } = this;
    const lines = decoder.decode(column).split('\n');
    for (let i = from; i < lines.length; i++) {
      const text = lines[i];
      if (text === '' || text === 'null' || text.length > shared[KEY_LIMIT]) continue;
      const key = parse(text);
      if (table.find(key) !== undefined) continue;
      if (entries.length >= most) return false;
      entries.push(table.add(key, text));
    }
    return true;
  }

  request(id) {
    const names = [];
    for (let i = 0; i < this.entries.length; i++) names.push(this.entries[i].keyText);
    return encoder.encode(`{"c":${id},"k":[${names.join(',')}]}`);
  }

  // Fills the entries; answers with the length of it all, or -1 if these are not the values of the entries.
  take(expiries, values) {
    const { entries } = this;
    const texts = decoder.decode(values).split('\n');
    if (texts.length !== entries.length) return -1;
    for (let i = 0; i < entries.length; i++) {
      if (entries[i].kind === UNKNOWN) tablesInJavaScript.fill(entries[i], texts[i], expiries === null ? null : expiries[i]);
    }
    return values.length;
  }
}

const tablesInJavaScript = {
  wanted(table, entry) {
    return new Wanted(table, entry);
  },

  bounds(entries, bytes) {
    usage.maxEntries = entries;
    usage.maxBytes = bytes;
  },

  open(owner, ttl, byAccess) {
    return new Table(owner, ttl, byAccess);
  },

  // What the event touched last, for its dead letter.
  touch(entry) {
    touchedLast = entry;
    touchedLastOf = shared[SERIAL];
    if (entry !== null) entry.usedIn = shared[BATCH];
  },

  lastTouched() {
    return touchedLastOf === shared[SERIAL] ? touchedLast : null;
  },

  putPlain(entry, value) {
    saveForUndo(entry);
    markChanged(entry);
    if (typeof value === 'string') account(entry, value.length);
    if (entry.live !== undefined) {
      entry.live = undefined;
      entry.assigned = 0;
    }
    entry.kind = PLAIN;
    entry.value = value;
  },

  putLive(entry, value) {
    saveForUndo(entry);
    addLive(entry);
    markChanged(entry);
    entry.live = value;
    entry.assigned = shared[SERIAL];
    if (entry.kind !== TEXT) {
      entry.kind = TEXT;
      entry.value = '';
    }
  },

  putAbsent(entry) {
    saveForUndo(entry);
    markChanged(entry);
    entry.kind = ABSENT;
    entry.value = undefined;
    entry.expires = null;
    if (entry.live !== undefined) {
      entry.live = undefined;
      entry.assigned = 0;
    }
  },

  // The objects that the event has in hand.
  liveAt(i) {
    return lives[i];
  },

  // The object to make text of, or undefined if its entry was given another value.
  liveValue(i) {
    const entry = lives[i];
    if (entry.kind !== TEXT || entry.live === undefined) return undefined;
    tablesInJavaScript.touch(entry);
    return entry.live;
  },

  // The event's end: the text of a live object.
  settle(i, text) {
    const entry = lives[i];
    if (text === entry.value && entry.assigned !== shared[SERIAL]) return;
    const first = text.charCodeAt(0);
    const isText = first === 0x7b || first === 0x5b;
    const value = isText ? text : parse(text); // a toJSON answered with a plain value
    saveForUndo(entry);
    markChanged(entry);
    account(entry, text.length);
    shared[TEXT_LENGTH] += text.length;
    entry.value = value;
    if (!isText) entry.kind = PLAIN;
  },

  thaw(entry) {
    if (entry.live !== undefined) return entry.live;
    const value = parse(entry.value);
    addLive(entry);
    entry.live = value;
    return value;
  },

  // What the host answered.
  fill(entry, text, expires) {
    account(entry, text.length);
    if (text === '') {
      entry.kind = ABSENT;
      return;
    }
    const first = text.charCodeAt(0);
    const isText = first === 0x7b || first === 0x5b;
    const value = isText ? text : parse(text);
    if (expires !== null) entry.expires = expires;
    entry.value = value;
    entry.kind = isText ? TEXT : PLAIN;
  },

  // Moves the expiry of an entry that was read, if that is worth a write.
  refresh(entry) {
    const { table } = entry;
    const fresh = shared[BATCH_TIME] + table.ttl;
    if (entry.expires === null || fresh - entry.expires <= table.ttl / 10) return;
    saveForUndo(entry);
    if (entry.touchedIn !== shared[BATCH]) {
      table.touched.push(entry);
      table.changedLately.push(entry);
      entry.touchedIn = shared[BATCH];
    }
    entry.expires = fresh;
  },

  keepChanges() {
    slotEntry = null;
    undone.length = 0;
    dropLives();
    shared[CHANGES] = 0;
  },

  undoAll() {
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
    dropLives();
    shared[CHANGES] = 0;
  },

  beginBatch() {
    for (let t = 0; t < allTables.length; t++) {
      const table = allTables[t];
      if (table.changed.length > 0) table.changed = [];
      if (table.touched.length > 0) table.touched = [];
      if (table.changedLately.length > 0) table.changedLately = table.changedLately.filter((entry) => !isSettled(entry));
    }
    if (usage.entries > usage.maxEntries || usage.bytes > usage.maxBytes) evict();
  },
};

// Forgets clean entries, least recently read first, until the cache is at three quarters of its bounds.
function evict() {
  for (let age = 1; age >= 0; age--) {
    for (let t = 0; t < allTables.length; t++) {
      const { map } = allTables[t];
      for (const entry of map.values()) {
        if (usage.entries <= usage.maxEntries * 0.75 && usage.bytes <= usage.maxBytes * 0.75) return;
        if (!isSettled(entry) || entry.usedIn > shared[BATCH] - 1 - age) continue;
        map.delete(entry.key);
        usage.entries -= 1;
        account(entry, 0);
      }
    }
  }
}
