// The outputs of a batch, a column for each declared stream. Values become JSON text at once, so a later mutation does
// not reach them. A failed event's outputs are taken out again.
//
// A column says nothing of sources while event i made exactly value i, and nothing of keys while each is its event's key.

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

class Column {
  constructor(index, declared) {
    this.index = index;
    this.name = declared.name;
    this.path = declared.key === null || declared.key === undefined ? null : declared.key.split('.');
    this.field = this.path !== null && this.path.length === 1 ? this.path[0] : null;
    this.clear();
  }

  clear() {
    this.values = [];
    this.keys = null; // null: each has its event's key
    this.sources = null; // null: value i was made by event i
  }

  add(value, keyText, where) {
    if (added.length >= outputsPerEvent) tooManyOutputs();
    this.place(jsonText(value, where, outputLimit, 'output_bytes'), value, keyText, where);
  }

  place(text, value, keyText, where) {
    const { values } = this;
    const at = values.length;
    if (keyText === undefined && this.path !== null) keyText = this.keyOf(value, where);
    if (this.sources === null && at !== shared[INDEX]) this.explainSources();
    if (this.keys === null && keyText !== undefined) this.explainKeys();
    if (this.keys !== null && keyText === undefined) keyText = batch.keyTextAt(shared[INDEX]);
    const before = added.length;
    try {
      added.push(this);
      if (this.sources !== null) this.sources.push(shared[INDEX]);
      if (this.keys !== null) this.keys.push(keyText);
      values.push(text);
    } catch (error) {
      // No stack or memory left: all columns or none.
      values.length = at;
      if (this.sources !== null) this.sources.length = at;
      if (this.keys !== null) this.keys.length = at;
      added.length = before;
      throw error;
    }
    shared[TEXT_LENGTH] += text.length;
  }

  keyOf(value, where) {
    let found = value;
    if (this.field !== null) {
      found = found === null || typeof found !== 'object' ? undefined : found[this.field];
    } else {
      for (let i = 0; i < this.path.length; i++) {
        found = found === null || typeof found !== 'object' ? undefined : found[this.path[i]];
      }
    }
    if (typeof found === 'string') {
      const known = keyTexts.get(found);
      if (known !== undefined) return known;
    }
    return outputKey(found, `${where}.${this.path.join('.')}, the key of stream ${stringify(this.name)},`);
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

  // The same for the one result of a handler, as the event's last act: nothing can fail after it.
  addResult(value) {
    if (added.length >= outputsPerEvent) tooManyOutputs();
    const text = jsonText(value, 'the result', outputLimit, 'output_bytes');
    const { values } = this;
    if (this.path === null && this.sources === null && this.keys === null && values.length === shared[INDEX]) {
      shared[TEXT_LENGTH] += text.length;
      values.push(text);
    } else {
      this.place(text, value, undefined, 'the result');
    }
  }

  takeBack() {
    this.values.pop();
    if (this.sources !== null) this.sources.pop();
    if (this.keys !== null) this.keys.pop();
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
    if (column.name !== '') columnsByName.set(column.name, column); // '': the place of a sink that is not there
  }
}

function collectOutputs(processed, header, sections) {
  for (let c = 0; c < columns.length; c++) {
    const column = columns[c];
    const count = column.values.length;
    if (count === 0) continue;
    if (column.sources === null && count !== processed) column.explainSources();
    header.push([c, count, column.keys === null ? 0 : 1, column.sources === null ? 0 : 1]);
    sections.push(encoder.encode(column.values.join('\n'))); // bytes at once: memory holds each text as few times as can be
    column.values = [];
    if (column.keys !== null) sections.push(encoder.encode(column.keys.join('\n')));
    if (column.sources !== null) sections.push(new Uint8Array(new Uint32Array(column.sources).buffer));
    column.clear();
  }
}
