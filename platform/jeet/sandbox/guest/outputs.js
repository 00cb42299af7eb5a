// The outputs of a batch, a column for each declared stream. Values become JSON text at once, so a later mutation does
// not reach them. A failed event's outputs are taken out again.
//
// A column says nothing of sources while event i made exactly value i, and nothing of keys while each is its event's key.
// The built-in plugin keeps the rows as bytes (platform/plugin/src/columns.c); any other plugin, as texts here.

const columns = [];
const columnsByName = new Map();
const added = []; // the column of each output of the running event
const MAX_TEXT = 4194304;

let outputLimit = 1048576;
let outputsPerEvent = 1000;

const keyTexts = new Map(); // short-lived cache: key → its JSON text

function outputKey(key, where) {
  if (typeof key === 'number') {
    if (key > MAX_INTEGER || key < -MAX_INTEGER || floor(key) !== key) {
      throw new TypeError(`${where} is ${key}: a key is a string or a whole number up to 2^53-1`);
    }
    return `"${key + 0}"`;
  }
  if (typeof key !== 'string') {
    throw new TypeError(`${where} is ${describeType(key)}: a key is a string or a whole number`);
  }
  const known = keyTexts.get(key);
  if (known !== undefined) return known;
  const text = checkKey(key, where);
  if (keyTexts.size >= 10000) keyTexts.clear();
  keyTexts.set(key, text);
  return text;
}

function describeType(value) {
  if (value === null) return 'null';
  if (value === undefined) return 'missing';
  return isArray(value) ? 'an array' : `${typeof value === 'object' ? 'an' : 'a'} ${typeof value}`;
}

function tooManyOutputs() {
  throw new RangeError(`an event may make at most ${outputsPerEvent} outputs (outputs_per_event)`);
}

// Where a column's rows are. put() writes a value that is plain, or answers with a code that says why not (strict.js); both give the length of what
// they have written, and a row is there whole or not at all.
class ScriptRows {
  constructor() {
    this.clear();
  }

  clear() {
    this.values = [];
    this.keys = null; // null: each has its event's key
    this.sources = null; // null: value i was made by event i
  }

  put() {
    return WRITE_UNUSUAL;
  }

  putText(text, keyText) {
    const { values } = this;
    const at = values.length;
    if (this.sources === null && at !== shared[INDEX]) this.explainSources();
    if (this.keys === null && keyText !== undefined) this.explainKeys();
    if (this.keys !== null && keyText === undefined) keyText = batch.keyTextAt(shared[INDEX]);
    try {
      if (this.sources !== null) this.sources.push(shared[INDEX]);
      if (this.keys !== null) this.keys.push(keyText);
      values.push(text);
    } catch (error) {
      // No stack or memory left: all columns or none.
      values.length = at;
      if (this.sources !== null) this.sources.length = at;
      if (this.keys !== null) this.keys.length = at;
      throw error;
    }
    return text.length;
  }

  explainSources() {
    const sources = [];
    for (let i = 0; i < this.values.length; i++) sources.push(i);
    this.sources = sources;
  }

  explainKeys() {
    const keys = [];
    for (let i = 0; i < this.values.length; i++) {
      keys.push(batch.keyTextAt(this.sources === null ? i : this.sources[i]));
    }
    this.keys = keys;
  }

  pop() {
    this.values.pop();
    if (this.sources !== null) this.sources.pop();
    if (this.keys !== null) this.keys.pop();
  }

  // Adds the sections of all rows; says how many there are, and whether with keys and with sources.
  collect(processed, sections) {
    const count = this.values.length;
    if (count === 0) return [0, 0, 0];
    if (this.sources === null && count !== processed) this.explainSources();
    const { keys, sources } = this;
    sections.push(encoder.encode(this.values.join('\n'))); // bytes at once: memory holds each text as few times as can be
    this.values = [];
    if (keys !== null) sections.push(encoder.encode(keys.join('\n')));
    if (sources !== null) sections.push(new Uint8Array(new Uint32Array(sources).buffer));
    this.clear();
    return [count, keys === null ? 0 : 1, sources === null ? 0 : 1];
  }
}

class NativeRows {
  constructor(path) {
    this.id = native.newColumn(path !== null && path.length === 1 ? path[0] : undefined);
    this.writesKeys = path === null || path.length === 1;
  }

  clear() {
    native.clearColumn(this.id);
  }

  put(value) {
    return this.writesKeys ? native.putRow(this.id, shared[INDEX], value, outputLimit, depthLimit, shared[KEY_LIMIT]) : WRITE_UNUSUAL;
  }

  putText(text, keyText) {
    return native.putText(this.id, shared[INDEX], text, keyText);
  }

  pop() {
    native.popRow(this.id);
  }

  collect(processed, sections) {
    const [count, values, keys, sources] = native.takeColumn(this.id, processed);
    if (count === 0) return [0, 0, 0];
    sections.push(values);
    if (keys >= 0) sections.push(keys);
    if (sources >= 0) sections.push(sources);
    return [count, keys >= 0 ? 1 : 0, sources >= 0 ? 1 : 0];
  }
}

const Rows = native === null ? ScriptRows : NativeRows;

class Column {
  constructor(index, declared) {
    this.index = index;
    this.name = declared.name;
    this.path = declared.key === null || declared.key === undefined ? null : declared.key.split('.');
    this.times = declared.internal ? [] : null; // event time of each row, which goes along to the next stage
    this.rows = new Rows(this.path);
  }

  // What goes to another stage.
  addTimed(value, keyText, time, where) {
    this.times.push(time);
    try {
      this.add(value, keyText, where);
    } catch (error) {
      this.times.pop();
      throw error;
    }
  }

  takeBack() {
    this.rows.pop();
    if (this.times !== null) this.times.pop();
  }

  add(value, keyText, where) {
    if (added.length >= outputsPerEvent) tooManyOutputs();
    const length = this.place(value, keyText, where);
    try {
      added.push(this);
    } catch (error) {
      this.rows.pop();
      throw error;
    }
    shared[TEXT_LENGTH] += length;
  }

  // The one result of a handler, as the event's last act: nothing can fail after it.
  addResult(value) {
    if (added.length >= outputsPerEvent) tooManyOutputs();
    shared[TEXT_LENGTH] += this.place(value, undefined, 'the result');
  }

  place(value, keyText, where) {
    const length = keyText === undefined ? this.rows.put(value) : WRITE_UNUSUAL;
    if (length >= 0) return length;
    const text = jsonText(value, where, outputLimit, 'output_bytes');
    return this.rows.putText(text, keyText === undefined && this.path !== null ? this.keyOf(text, where) : keyText);
  }

  // The key that stands in the text: the value may say something else each time it is asked (getters, toJSON).
  keyOf(text, where) {
    return outputKey(follow(parse(text), this.path), `${where}.${this.path.join('.')}, the key of stream ${stringify(this.name)},`);
  }
}

function takeBackOutputs() {
  for (let i = added.length - 1; i >= 0; i--) added[i].takeBack();
  added.length = 0;
}

function declareOutputs(declared) {
  for (let i = 0; i < declared.length; i++) {
    const column = new Column(i, declared[i]);
    columns.push(column);
    // '': the place of a sink that is not there. User code cannot name what joins two stages.
    if (column.name !== '' && column.times === null) columnsByName.set(column.name, column);
  }
}

function collectOutputs(processed, header, sections) {
  for (let c = 0; c < columns.length; c++) {
    const [count, keyed, sourced] = columns[c].rows.collect(processed, sections);
    if (count === 0) continue;
    const { times } = columns[c];
    header.push([c, count, keyed, sourced]);
    if (times !== null) sections.push(times.join('\n'));
  }
}

function clearOutputs() {
  for (let c = 0; c < columns.length; c++) {
    columns[c].rows.clear();
    if (columns[c].times !== null) columns[c].times.length = 0;
  }
}
