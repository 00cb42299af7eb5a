// The cache of entries: filled from the host on demand and ahead of it, enumerated in key order, bounded.

// How many rows may be asked for at once, so that the answer stays near FETCH_BYTES.
function fetchable(collection, first, most) {
  if (collection.rowsRead < 100) return first;
  const rows = floor(FETCH_BYTES / (collection.bytesRead / collection.rowsRead + 1));
  return rows < 1 ? 1 : rows > most ? most : rows;
}

// Asks the host once for this key and for all keys that the rest of the batch will probably want.
function fetchMissing(collection, entry) {
  const wanted = migrate === null || collection.ofOperator ? tables.wanted(collection.table, entry) : new Sought(collection, entry);
  if (collection.likely !== null) {
    addForeseen(collection, entry.key, wanted, fetchable(collection, FIRST_PREFETCH_KEYS, PREFETCH_KEYS));
  } else if (collection.prefetchedIn !== shared[BATCH]) {
    const most = fetchable(collection, FIRST_PREFETCH_KEYS, PREFETCH_KEYS);
    // If there are more than may be asked for at once, the next miss goes on from there.
    if (addLikely(collection, entry.key, wanted, most)) collection.prefetchedIn = shared[BATCH];
  }
  send(OP_READ, wanted.request(collection.id));
  const [expiries, values, versions] = answerOf();
  const bytes = wanted.take(listOf(expiries), values, listOf(versions));
  if (bytes < 0) throw new InternalFault('the host answered for other keys than asked');
  collection.rowsRead += wanted.count;
  collection.bytesRead += bytes;
}

function listOf(section) {
  return section === undefined || section.length === 0 ? null : parse(decoder.decode(section));
}

// Adds entries for keys that later events of this batch will ask for: the events' own keys if this key is its event's
// key, else the values of the field of the event that this key was taken from. False if there was no room for all.
function addLikely(collection, key, wanted, most) {
  if (key === batch.keyAt(shared[INDEX])) return wanted.addLines(batch.bytes[2], shared[INDEX] + 1, most);
  const event = batch.valueAt(shared[INDEX]);
  if (event === null || typeof event !== 'object') return true;
  const field = fieldOf(collection, event, key);
  if (field === null) return true;
  const { count } = batch;
  for (let i = shared[INDEX] + 1; i < count; i++) {
    const later = batch.valueAt(i);
    if (later === null || typeof later !== 'object') continue;
    const value = later[field];
    if (typeof value !== 'string' && typeof value !== 'number') continue;
    const next = `${value}`;
    if (collection.table.find(next) !== undefined || next.length * 3 > shared[KEY_LIMIT]) continue;
    if (wanted.count >= most) return false;
    wanted.add(newEntry(collection, next));
  }
  return true;
}

// The same for an operator's state, whose keys are made of more than the event's key.
function addForeseen(collection, key, wanted, most) {
  const { count } = batch;
  for (let i = shared[INDEX] + 1; i < count && wanted.count < most; i++) {
    const next = collection.likely(key, i);
    if (next !== null && next.length * 3 <= shared[KEY_LIMIT] && collection.table.find(next) === undefined) {
      wanted.add(newEntry(collection, next));
    }
  }
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
  tables.touch(null);
  lastCollection = collection;
  lastCollectionOf = shared[SERIAL];
  const names = new Set();
  let after = null;
  for (;;) {
    const limit = fetchable(collection, SCAN_PAGE, 1000);
    const [head, values] = ask(OP_SCAN, { c: collection.id, after, limit });
    const page = parse(decoder.decode(head));
    const texts = page.keys.length > 0 ? decoder.decode(values).split('\n') : [];
    for (let i = 0; i < page.keys.length; i++) {
      const key = page.keys[i];
      const known = collection.table.find(key);
      const entry = known === undefined ? newEntry(collection, key) : known;
      if (entry.kind === UNKNOWN) {
        learn(collection, entry, texts[i], page.expires[i], page.older === undefined ? null : page.older[i]);
        collection.rowsRead += 1;
        collection.bytesRead += texts[i].length;
        renew(collection, entry);
      }
      if (entry.kind !== ABSENT && !expired(entry)) names.add(key);
      after = key;
    }
    if (names.size > MAX_ENUMERATED || page.keys.length < limit) break;
  }
  const recent = collection.table.recent();
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
