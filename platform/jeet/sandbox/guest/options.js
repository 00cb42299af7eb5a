// What the operators of the graph take beside their handlers: checked when the graph is declared, so that a mistake is an
// error at deploy that names the option and, by its stack, the line.

const DURATION = /^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*$/;
const UNITS_MS = { __proto__: null, ms: 1, s: 1000, m: 60000, h: 3600000, d: 86400000 };
const MAX_DURATION_MS = 100 * 366 * 86400000;
const MIN_TIME_MS = -62135596800000; // the year 1
const MAX_TIME_MS = 253402300799999; // the end of the year 9999
const ISO_TIME = /^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?$/;

// Milliseconds of a text such as '5m'; only `delay` and `grace` may be zero.
function durationOf(text, where, mayBeZero) {
  const found = typeof text === 'string' ? DURATION.exec(text) : null;
  if (found === null) {
    throw new TypeError(`${where} is ${show(text, 1, [])}, which is no duration: write it like '250ms', '10s', '5m', '1h' or '7d'`);
  }
  const ms = Math.round(+found[1] * UNITS_MS[found[2]]);
  if (ms > MAX_DURATION_MS || (ms <= 0 && !mayBeZero)) {
    throw new TypeError(`${where} is ${show(text, 1, [])}: a duration is above 0 and at most a hundred years`);
  }
  return ms;
}

// Milliseconds since the epoch, whole ones, of what a `time` or an `at` gave.
function timeOf(value, where) {
  if (typeof value === 'number' && value >= MIN_TIME_MS && value <= MAX_TIME_MS) return floor(value);
  let ms = value;
  if (value instanceof NativeDate) ms = value.getTime();
  else if (typeof value === 'string' && ISO_TIME.test(value)) ms = NativeDate.parse(value);
  if (typeof ms !== 'number' || !(ms >= MIN_TIME_MS && ms <= MAX_TIME_MS)) {
    throw new TypeError(
      `${where} gave ${show(value, 1, []).slice(0, 100)}, which is no time: give milliseconds since the epoch, a Date or an ISO 8601` +
      ' text, in the years 1 to 9999',
    );
  }
  return floor(ms);
}

function optionsOf(where, options, allowed) {
  if (options === undefined) return create(null);
  if (options === null || typeof options !== 'object' || isArray(options)) {
    throw new TypeError(`${where} takes an object of options, not ${describeType(options)}`);
  }
  const given = keysOf(options);
  for (let i = 0; i < given.length; i++) {
    if (!allowed.includes(given[i])) {
      throw new TypeError(`${where} has no option ${stringify(given[i])}: there are ${allowed.join(', ')}`);
    }
  }
  return options;
}

function requireHandler(where, handler) {
  if (typeof handler !== 'function') throw new TypeError(`${where} takes a function, not ${describeType(handler)}`);
  return handler;
}

function requireName(where, name) {
  if (typeof name !== 'string' || name === '') throw new TypeError(`${where} takes the name of a stream`);
  return name;
}

// What a path of own names leads to; undefined if nothing is there.
function follow(value, path) {
  let found = value;
  for (let i = 0; i < path.length; i++) {
    found = found === null || typeof found !== 'object' || isArray(found) || !hasOwn(found, path[i]) ? undefined : found[path[i]];
  }
  return found;
}

// A function, or the path of a field, as a function; `path` or `text` tells deploy whether it has changed.
function selectorOf(where, by) {
  if (typeof by === 'function') return { handler: by, text: fingerprint(by) };
  if (typeof by !== 'string' || by === '' || by.split('.').includes('')) {
    throw new TypeError(`${where} takes a function or the path of a field, such as 'user.id', not ${typeof by === 'string' ? stringify(by) : describeType(by)}`);
  }
  const path = by.split('.');
  return { handler: (item) => follow(item, path), path: by };
}

// A short hash of a function's source (cyrb53): for noticing a change, not for safety.
function fingerprint(handler) {
  const text = apply(sourceOf, handler, []);
  let a = 0xdeadbeef;
  let b = 0x41c6ce57;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    a = Math.imul(a ^ unit, 2654435761);
    b = Math.imul(b ^ unit, 1597334677);
  }
  a = Math.imul(a ^ (a >>> 16), 2246822507) ^ Math.imul(b ^ (b >>> 13), 3266489909);
  b = Math.imul(b ^ (b >>> 16), 2246822507) ^ Math.imul(a ^ (a >>> 13), 3266489909);
  return `${(b >>> 0).toString(16).padStart(8, '0')}${(a >>> 0).toString(16).padStart(8, '0')}`;
}

const WINDOW_OPTIONS = ['tumbling', 'hopping', 'session', 'time', 'delay', 'grace', 'emit', 'lateTo', 'idle', 'name'];
const MAX_WINDOWS_OF_AN_EVENT = 1000;

// A window's definition as deploy compares it, and its name and `time`.
function windowOf(options) {
  const given = optionsOf('window', options, WINDOW_OPTIONS);
  const kinds = ['tumbling', 'hopping', 'session'].filter((kind) => given[kind] !== undefined);
  if (kinds.length !== 1) throw new TypeError("window takes one of tumbling: '1m', hopping: { size, every } and session: '30s'");
  const [kind] = kinds;
  const window = { kind };
  if (kind === 'tumbling') {
    window.size_ms = durationOf(given.tumbling, 'window: tumbling');
  } else if (kind === 'session') {
    window.gap_ms = durationOf(given.session, 'window: session');
  } else {
    const hopping = optionsOf('window: hopping', given.hopping, ['size', 'every']);
    window.size_ms = durationOf(hopping.size, 'window: hopping.size');
    window.every_ms = durationOf(hopping.every, 'window: hopping.every');
    if (window.every_ms > window.size_ms) {
      throw new TypeError('window: hopping.every is longer than hopping.size: events in between would be in no window');
    }
    if (window.size_ms / window.every_ms > MAX_WINDOWS_OF_AN_EVENT) {
      throw new TypeError(`window: an event would be in more than ${MAX_WINDOWS_OF_AN_EVENT} windows: make hopping.every longer`);
    }
  }
  window.delay_ms = given.delay === undefined ? 0 : durationOf(given.delay, 'window: delay', true);
  window.grace_ms = given.grace === undefined ? 0 : durationOf(given.grace, 'window: grace', true);
  window.emit = given.emit === undefined ? 'close' : given.emit;
  if (!['close', 'change', 'both'].includes(window.emit)) {
    throw new TypeError(`window: emit is ${show(window.emit, 1, [])}: there are 'close', 'change' and 'both'`);
  }
  if (given.lateTo !== undefined) window.late_to = requireName('window: lateTo', given.lateTo);
  if (given.idle !== undefined) window.idle_ms = durationOf(given.idle, 'window: idle');
  const time = given.time === undefined ? null : selectorOf('window: time', given.time);
  describeTime(window, time);
  return { window, name: given.name, time: time === null ? null : time.handler };
}

function describeTime(facts, time) {
  facts.time = time === null ? null : time.path === undefined ? 'function' : 'path';
  if (time !== null) facts.time_text = time.path === undefined ? time.text : time.path;
}
