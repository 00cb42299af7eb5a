// What a handler gets beside its event. Each event has a context of its own; its parts are read from the batch's
// columns only when asked for. After the event has ended it can still be read but emits nothing.

const AT = Symbol('index');
const EVENT = Symbol('serial');
const TIME_AT = Symbol('time'); // of what follows a window or a join: its own event time

const contextPrototype = {
  get key() { return batch.keyAt(this[AT]); },
  get partition() { return spec.partition; },
  get offset() { return batch.offsetAt(this[AT]); },
  get timestamp() {
    const own = this[TIME_AT];
    return own === undefined ? batch.timestampAt(this[AT]) : own;
  },
  get headers() { return batch.headersAt(this[AT]); },
  get function() { return spec.function; },
  get version() { return spec.version; },
  get attempt() { return batch.attempt; },

  // Writes a value to a declared stream. Options: key, a string or a whole number.
  emit(stream, value, options) {
    if (this[EVENT] !== shared[SERIAL]) throw new Error('context.emit was called after its event had ended');
    const column = columnsByName.get(stream);
    if (column === undefined) {
      throw new TypeError(
        `context.emit: this function declares no output stream ${typeof stream === 'string' ? stringify(stream) : String(stream)};` +
        ` add it to config.emits (declared: ${Array.from(columnsByName.keys()).join(', ') || 'none'})`,
      );
    }
    const key = options === undefined || options === null ? undefined : options.key;
    column.add(value, key === undefined ? undefined : outputKey(key, `the key of emit(${stringify(stream)})`), `emit(${stringify(stream)})`);
  },

  // Sets a timer of the event's key, or moves it: { at: time } or { after: '5m' }, and clock: 'wall' (default) or 'event'; null
  // cancels it. stream.onTimer runs when it is due.
  timer(name, options) {
    if (this[EVENT] !== shared[SERIAL]) throw new Error('context.timer was called after its event had ended');
    setUserTimer(this, name, options);
  },

  cancelTimer(name) {
    this.timer(name, null);
  },

  toJSON() {
    const { key, partition, offset, timestamp, headers, version, attempt } = this;
    return { key, partition, offset, timestamp, headers, function: spec.function, version, attempt };
  },
};

function newContext(index) {
  return { __proto__: contextPrototype, [AT]: index, [EVENT]: shared[SERIAL] };
}

// The same for what has an event time of its own.
function contextAt(context, time) {
  return { __proto__: contextPrototype, [AT]: context[AT], [EVENT]: context[EVENT], [TIME_AT]: time };
}
