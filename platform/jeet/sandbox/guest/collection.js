// A collection as user code sees it: a proxy whose traps read and write entries.

// Traps close over what they need; the first lines of get and set are the way of a number in the cache.
function makeProxy(collection) {
  const { map, ttl } = collection;
  const proxy = new Proxy(create(null), {
    get(_target, key) {
      if (shared[SERIAL] !== 0) {
        const known = map.get(key);
        if (known !== undefined && known.kind === PLAIN && known.expires === null) {
          lastEntry = known;
          known.usedIn = shared[BATCH];
          return known.value;
        }
      }
      if (typeof key === 'symbol') return undefined;
      const entry = find(collection, key);
      if (!isPresent(collection, entry)) return undefined;
      return entry.kind === PLAIN ? entry.value : thaw(entry);
    },

    set(_target, key, value, receiver) {
      if (typeof value === 'number' && ttl === null && shared[SERIAL] !== 0 && receiver === proxy) {
        const known = map.get(key);
        if (known !== undefined && known.kind === PLAIN && known.expires === null && value <= MAX_INTEGER && value >= -MAX_INTEGER) {
          lastEntry = known;
          if (known !== slotEntry) {
            if (slotEntry === null && known.undoSerial !== shared[SERIAL]) {
              slotEntry = known;
              slotValue = known.value;
              slotChangedIn = known.changedIn;
            } else {
              saveForUndo(known);
            }
          }
          if (known.changedIn !== shared[BATCH]) markChanged(collection, known);
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
  found.usedIn = shared[BATCH];
  return found;
}

function assign(collection, key, value) {
  const entry = target(collection, key);
  switch (typeof value) {
    case 'number':
      if (value - value !== 0 || value > MAX_INTEGER || value < -MAX_INTEGER || shared[CAREFUL] !== 0) checkNumber(value, place(collection, key));
      value += 0; // -0 is 0 in JSON
      break;
    case 'string':
      if (shared[CAREFUL] !== 0 || value.length * 6 > shared[VALUE_LIMIT]) jsonText(value, place(collection, key), shared[VALUE_LIMIT], 'state_value_bytes');
      account(entry, value.length);
      break;
    case 'boolean':
      break;
    default:
      if (value === null) break;
      if (typeof value !== 'object') checkDeep(value, place(collection, key), 0);
      saveForUndo(entry);
      if (entry.liveSerial !== shared[SERIAL]) lives.push(entry);
      markChanged(collection, entry);
      entry.live = value;
      entry.liveSerial = shared[SERIAL];
      entry.assigned = shared[SERIAL];
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
