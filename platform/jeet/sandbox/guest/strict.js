// What may leave an event: JSON that says exactly what the value said. Nothing is dropped, rounded or turned to null.
//
// jsonText(value, where, …) is the only way from a value to text, and so is an output's row (outputs.js). The native writer
// takes what is plain (its answers are WRITE_…); the rest, and the words for what is refused, are here. Refused by name: undefined, functions, symbols, BigInt,
// NaN and the infinities, integers past 2^53-1, NUL and lone surrogates in strings and names, cycles and anything deeper
// than the limit, sparse arrays, objects that JSON would write as {} or lose (Map, Set, Promise, RegExp, Error, buffers).
// A toJSON method (Date has one) is followed, and its answer is held to the same rules.

class JsonError extends TypeError {}
hidden(JsonError.prototype, 'name', 'JsonError');

// A failure of the driver itself or a breach of its rules; never the user's data.
class InternalFault extends Error {}
hidden(InternalFault.prototype, 'name', 'InternalFault');

let depthLimit = 128;
let room = Infinity; // characters of strings that the text may still hold: too long a one is refused before any work
let followed = false; // a toJSON was met: write the normalised copy instead

class TooLong extends Error {}

function makeRoom(length) {
  room -= length;
  if (room < 0) throw new TooLong('too long');
}

function refuse(where, what) {
  throw new JsonError(`${where} ${what}`);
}

function checkNumber(v, where) {
  if (v - v !== 0) refuse(where, `is ${v}, which JSON cannot hold: use null or leave it out`);
  if ((v > MAX_INTEGER || v < -MAX_INTEGER) && v < 1e21 && v > -1e21) {
    refuse(where, `is ${v}, an integer past 2^53-1, where digits are lost: send it as a string`);
  }
  if (v !== 0 && v < 1e-308 && v > -1e-308) refuse(where, `is ${v}, whose exponent is beyond 308 (number_exponent)`);
}

function checkDeep(v, where, depth) {
  switch (typeof v) {
    case 'string':
      makeRoom(v.length);
      return;
    case 'boolean':
      return;
    case 'number':
      checkNumber(v, where);
      return;
    case 'object': {
      if (v === null) return;
      if (depth >= depthLimit) refuse(where.slice(0, 60) + '…', `is nested deeper than ${depthLimit} levels (or refers to itself)`);
      if (isArray(v)) {
        if (v.toJSON !== undefined && typeof v.toJSON === 'function') { followed = true; return; }
        for (let i = 0; i < v.length; i++) {
          const item = v[i];
          if (typeof item === 'string') {
            makeRoom(item.length);
            continue;
          }
          checkDeep(item, `${where}[${i}]`, depth + 1);
        }
        return;
      }
      const prototype = getPrototypeOf(v);
      if (prototype !== ObjectPrototype && prototype !== null) {
        checkClass(v, where);
      }
      if (v.toJSON !== undefined && typeof v.toJSON === 'function') { followed = true; return; }
      const names = keysOf(v);
      for (let i = 0; i < names.length; i++) {
        const item = v[names[i]];
        const type = typeof item;
        if (type === 'string') {
          makeRoom(item.length);
          continue;
        }
        if (type === 'number') {
          checkNumber(item, `${where}.${names[i]}`);
          continue;
        }
        checkDeep(item, `${where}.${names[i]}`, depth + 1);
      }
      return;
    }
    case 'undefined':
      return refuse(where, 'is undefined, which JSON drops: use null or leave it out');
    case 'function':
      return refuse(where, 'is a function, which JSON drops');
    case 'bigint':
      return refuse(where, 'is a BigInt, which JSON cannot hold: use String(value)');
    default:
      return refuse(where, 'is a Symbol, which JSON drops');
  }
}

function checkClass(v, where) {
  const tag = apply(classOf, v, []);
  if (tag === '[object Object]' || tag === '[object Date]' || typeof v.toJSON === 'function') return;
  if (tag === '[object Number]' || tag === '[object String]' || tag === '[object Boolean]') {
    return refuse(where, `is a ${tag.slice(8, -1)} object: use the plain value`);
  }
  const name = tag.slice(8, -1);
  refuse(where, `is a ${name}, which JSON does not keep: turn it into a plain object or array first`);
}

// A plain copy in which every toJSON has been followed.
function normalise(v, where, depth, key) {
  if (v !== null && typeof v === 'object' && typeof v.toJSON === 'function') {
    if (v instanceof NativeDate && v.getTime() !== v.getTime()) refuse(where, 'is an invalid Date');
    v = v.toJSON(key);
  }
  if (v === null || typeof v !== 'object') {
    checkDeep(v, where, depth);
    return v;
  }
  if (depth >= depthLimit) refuse(where.slice(0, 60) + '…', `is nested deeper than ${depthLimit} levels (or refers to itself)`);
  if (isArray(v)) {
    const copy = [];
    for (let i = 0; i < v.length; i++) copy.push(normalise(v[i], `${where}[${i}]`, depth + 1, `${i}`));
    return copy;
  }
  const prototype = getPrototypeOf(v);
  if (prototype !== ObjectPrototype && prototype !== null) checkClass(v, where);
  const copy = create(null);
  const names = keysOf(v);
  for (let i = 0; i < names.length; i++) {
    copy[names[i]] = normalise(v[names[i]], `${where}.${names[i]}`, depth + 1, names[i]);
  }
  return copy;
}

// JSON.stringify escapes NUL as \u0000 and writes \ud800-\udfff only for surrogates without a partner.
const BAD_ESCAPE = /(?:^|[^\\])(?:\\\\)*\\u(0000|d[89a-f])/;

function checkText(text, where) {
  const found = BAD_ESCAPE.exec(text);
  if (found === null) return;
  refuse(where, found[1] === '0000' ? 'holds a NUL character (\\u0000)' : 'holds a lone surrogate (half of a character)');
}

// The quick way: JSON.stringify itself visits each value once, after toJSON. What the host can see in the finished text
// (escapes, long integers, depth) is left to it; on a hit it has the event run again alone, carefully.
const REFUSED = new Error('refused');

function strict(key, value) {
  switch (typeof value) {
    case 'string':
      room -= value.length;
      if (room < 0) throw REFUSED;
      return value;
    case 'number':
      if (value - value === 0) return value;
      throw REFUSED;
    case 'object': {
      if (value === null) {
        if (this[key] instanceof NativeDate) throw REFUSED; // an invalid one
        return value;
      }
      const prototype = getPrototypeOf(value);
      if (prototype === ObjectPrototype || prototype === null || isArray(value)) return value;
      checkClass(value, '');
      return value;
    }
    case 'boolean':
      return value;
    default:
      throw REFUSED;
  }
}


const WRITE_UNUSUAL = -1;
const WRITE_REFUSED = -2;

const jsonText = native === null ? scriptText : nativeText;

function nativeText(value, where, limit, limitName) {
  const text = native.jsonText(value, limit, depthLimit);
  if (typeof text === 'string') return text;
  return text === WRITE_REFUSED ? carefulText(value, where, limit, limitName) : scriptText(value, where, limit, limitName);
}

function scriptText(value, where, limit, limitName) {
  if (shared[CAREFUL] !== 0) return carefulText(value, where, limit, limitName);
  const outer = room; // a toJSON may come here again
  room = limit;
  let text;
  try {
    text = stringify(value, strict);
    room = outer;
  } catch (error) {
    room = outer;
    carefulText(value, where, limit, limitName); // says what and where
    throw error;
  }
  if (text.length > limit || (text.length * 3 > limit && utf8Length(text) > limit)) tooLong(where, limit, limitName);
  return text;
}

function tooLong(where, limit, limitName) {
  refuse(where, `is longer than ${limit} bytes (${limitName})`);
}

function carefulText(value, where, limit, limitName) {
  const outer = room;
  let text;
  try {
    followed = false;
    room = limit;
    checkDeep(value, where, 0);
    room = limit;
    text = stringify(followed ? normalise(value, where, 0, '') : value);
  } catch (error) {
    if (error instanceof TooLong) tooLong(where, limit, limitName);
    throw error;
  } finally {
    room = outer;
  }
  if (text.includes('\\u')) checkText(text, where);
  if (text.length > limit || (text.length * 3 > limit && utf8Length(text) > limit)) tooLong(where, limit, limitName);
  return text;
}

function utf8Length(text) {
  return encoder.encode(text).length;
}

// Keys of events and of state: any string of up to `key_bytes` bytes of UTF-8, without NUL and lone surrogates.

function checkKey(key, where) {
  if (key.length * 3 > shared[KEY_LIMIT] && utf8Length(key) > shared[KEY_LIMIT]) {
    throw new RangeError(`${where} is longer than ${shared[KEY_LIMIT]} bytes (key_bytes)`);
  }
  const text = stringify(key);
  if (text.length !== key.length + 2) {
    // Something had to be escaped.
    if (key.includes('\0')) throw new RangeError(`${where} holds a NUL character (\\u0000)`);
    if (BAD_ESCAPE.test(text)) throw new RangeError(`${where} holds a lone surrogate (half of a character)`);
  }
  return text;
}
