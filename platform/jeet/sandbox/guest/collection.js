// A collection as user code sees it. The functions of `traps` are what a read or a write means; a table of the plugin calls
// them for all but the common ways, and a proxy over a table of table.js for everything.

const traps = {
  get(collection, key) {
    if (typeof key === 'symbol') return undefined;
    const entry = find(collection, key);
    if (!isPresent(collection, entry)) return undefined;
    return entry.kind === PLAIN ? entry.value : tables.thaw(entry);
  },

  set(collection, key, value, receiver) {
    if (typeof key === 'symbol') throw new TypeError(`state.${collection.name}: a key must be a string, not a symbol`);
    if (receiver !== collection.table.object) {
      defineProperty(receiver, key, { value, writable: true, enumerable: true, configurable: true });
      return true;
    }
    assign(collection, key, value);
    return true;
  },

  has(collection, key) {
    if (typeof key === 'symbol') return false;
    return isPresent(collection, find(collection, key));
  },

  deleteProperty(collection, key) {
    if (typeof key !== 'symbol') tables.putAbsent(target(collection, key));
    return true;
  },

  ownKeys(collection) {
    return enumerate(collection);
  },

  define(collection, key, isValue, value) {
    if (typeof key === 'symbol' || !isValue) {
      throw new TypeError(`state.${collection.name} holds plain values: no accessors, no symbols`);
    }
    assign(collection, key, value);
    return true;
  },

  setPrototypeOf(collection) {
    throw new TypeError(`state.${collection.name} has no prototype to set: every string is a key`);
  },

  preventExtensions(collection) {
    throw new TypeError(`state.${collection.name} cannot be frozen or sealed`);
  },
};

// The first lines of get and set are the way of a number in the cache.
function makeProxy(collection, table) {
  const { map, ttl } = table;
  const proxy = new Proxy(create(null), {
    get(_target, key) {
      if (shared[SERIAL] !== 0) {
        const known = map.get(key);
        if (known !== undefined && known.kind === PLAIN && known.expires === null) {
          touchedLast = known;
          touchedLastOf = shared[SERIAL];
          known.usedIn = shared[BATCH];
          return known.value;
        }
      }
      return traps.get(collection, key);
    },

    set(_target, key, value, receiver) {
      if (typeof value === 'number' && ttl === null && shared[SERIAL] !== 0 && receiver === proxy) {
        const known = map.get(key);
        if (known !== undefined && setQuickly(known, value)) return true;
      }
      return traps.set(collection, key, value, receiver);
    },

    has(_target, key) {
      return traps.has(collection, key);
    },

    deleteProperty(_target, key) {
      return traps.deleteProperty(collection, key);
    },

    ownKeys() {
      return traps.ownKeys(collection);
    },

    getOwnPropertyDescriptor(_target, key) {
      const value = traps.get(collection, key);
      return value === undefined ? undefined : { value, writable: true, enumerable: true, configurable: true };
    },

    defineProperty(_target, key, descriptor) {
      return traps.define(collection, key, 'value' in descriptor, descriptor.value);
    },

    getPrototypeOf() {
      return null;
    },

    setPrototypeOf(_target, prototype) {
      return prototype === null || traps.setPrototypeOf(collection);
    },

    preventExtensions() {
      return traps.preventExtensions(collection);
    },
  });
  return proxy;
}

// The entry to write to: no read is needed.
function target(collection, key) {
  requireEvent();
  const entry = collection.table.find(key);
  const found = entry === undefined ? newEntry(collection, key) : entry;
  tables.touch(found);
  return found;
}

function assign(collection, key, value) {
  const entry = target(collection, key);
  switch (typeof value) {
    case 'number':
      if (value - value !== 0 || value > MAX_INTEGER || value < -MAX_INTEGER || shared[CAREFUL] !== 0) checkNumber(value, place(collection, key));
      tables.putPlain(entry, value + 0); // -0 is 0 in JSON
      return;
    case 'string':
      if (shared[CAREFUL] !== 0 || value.length * 6 > shared[VALUE_LIMIT]) jsonText(value, place(collection, key), shared[VALUE_LIMIT], 'state_value_bytes');
      tables.putPlain(entry, value);
      return;
    case 'boolean':
      tables.putPlain(entry, value);
      return;
    default:
      if (value === null) {
        tables.putPlain(entry, value);
        return;
      }
      if (typeof value !== 'object') checkDeep(value, place(collection, key), 0);
      tables.putLive(entry, value);
  }
}

function place(collection, key) {
  return `state.${collection.name}[${stringify(key)}]`;
}
