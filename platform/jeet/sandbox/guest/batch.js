// The batch loop: runs events one after another, each in isolation, and sends the batch's columns to the host.
//
// Promise: an event that fails leaves no trace but its fault and its log lines. The loop goes on in a microtask when an
// event's result is a promise, and ends early when the host raises STOP.

const faults = []; // [index, error, stack, state key]
let entrySteps = []; // of this batch's input
let noting = false; // whether the time of each event counts for the watermark
let only = null; // the one step of a graph of one handler
let handlerTakesContext = true;
let waitingFor = 0; // serial of the event whose promise is awaited, 0 if none
let mustSettle = true; // false: the source has nothing that could start a promise job
const NEVER_SETTLES = 'the promise of this event never settles: nothing is left that could resolve it';
const MAX_ERROR = 16384;

// The events as the host sent them, and one of them as a value. The native parser reads the bytes; what it gives up is for
// JSON.parse to judge, as everything is without it.
let eventBytes = null;
let eventTexts = null;

function parseInScript(i) {
  if (eventTexts === null) eventTexts = decoder.decode(eventBytes).split('\n');
  return parse(eventTexts[i]);
}

function parseNatively(i) {
  const value = native.parseEvent(i);
  return value === undefined ? parseInScript(i) : value;
}

const parseEvent = native === null ? parseInScript : parseNatively;

const batch = {
  count: 0,
  input: 0, // place in the stage's plan
  timers: false, // its events are timers that are due
  first: 0,
  offsets: null,
  attempt: 1,
  parsed: null, // events parsed ahead by a prefetch
  bytes: null,
  keyTexts: null,
  timestamps: null,
  timedAt: -1, // the event whose timestamp was read last
  time: 0,
  headers: null,
  skip: [],
  skipAt: 0,

  open(sections) {
    const head = parse(decoder.decode(sections[0]));
    this.count = head.count;
    this.input = head.input === undefined ? 0 : head.input;
    this.timers = head.timers === true;
    this.first = head.first;
    this.offsets = head.offsets;
    this.attempt = head.attempt;
    this.skip = head.skip;
    this.skipAt = 0;
    this.bytes = sections;
    eventBytes = sections[1];
    eventTexts = null;
    if (native !== null) native.openEvents(sections[1], sections[2]);
    this.parsed = null;
    this.keyTexts = null;
    this.timestamps = null;
    this.timedAt = -1;
    this.headers = null;
    return head;
  },

  close() {
    eventBytes = null;
    eventTexts = null;
    if (native !== null) native.closeEvents();
    this.parsed = null;
    this.keyTexts = null;
    this.timestamps = null;
    this.headers = null;
    this.bytes = null;
  },

  keyTextAt(i) {
    if (this.keyTexts === null) {
      const column = this.bytes[2];
      this.keyTexts = column.length > 0 ? decoder.decode(column).split('\n') : [];
    }
    return this.keyTexts.length > 0 ? this.keyTexts[i] : 'null';
  },

  keyAt(i) {
    return parse(this.keyTextAt(i));
  },

  timestampAt(i) {
    if (i === this.timedAt) return this.time;
    if (this.timestamps === null) this.timestamps = decoder.decode(this.bytes[3]).split('\n');
    this.time = +this.timestamps[i];
    this.timedAt = i;
    return this.time;
  },

  headersAt(i) {
    if (this.headers === null) {
      const column = this.bytes[4];
      this.headers = column.length > 0 ? decoder.decode(column).split('\n') : [];
    }
    return (this.headers.length > 0 ? parse(this.headers[i]) : null) || {};
  },

  offsetAt(i) {
    return this.offsets === null ? this.first + i : this.offsets[i];
  },

  // The event as a value, for looking at only: its own turn parses it afresh or takes this one over. The native parser is
  // faster than keeping it.
  valueAt(i) {
    if (i === shared[INDEX] || native !== null) return parseEvent(i);
    if (this.parsed === null) this.parsed = new Map();
    let value = this.parsed.get(i);
    if (value === undefined) {
      value = parseEvent(i);
      this.parsed.set(i, value);
    }
    return value;
  },

  take(i) {
    if (this.parsed !== null) {
      const ahead = this.parsed.get(i);
      if (ahead !== undefined) {
        this.parsed.delete(i);
        return ahead;
      }
    }
    return parseEvent(i);
  },
};

function runBatch(sections) {
  shared[PROGRESS] = -1; // the host gives what belongs to no event a budget of its own
  const head = batch.open(sections);
  shared[STOP] = 0;
  shared[TIME] = head.now;
  faults.length = 0;
  logLines.length = 0;
  batchLogUsed = 0;
  shared[TEXT_LENGTH] = 0;
  shared[CAREFUL] = head.careful || head.count === 1 ? 1 : 0;
  beginStateBatch(head.number, head.committed, head.now);
  if (only === null) beginStage(head);
  else if (mayRunNatively()) runNatively();
  else goOnWithOne(0);
}

function beginStage(head) {
  beginTime(head);
  entrySteps = batch.timers ? timerSteps : entries[batch.input];
  noting = raises && notesAtEntry[batch.input];
  goOn(0);
}

function beginEvent(index) {
  shared[PROGRESS] = index;
  shared[SERIALS] += 1;
  shared[SERIAL] = shared[SERIALS];
  shared[INDEX] = index;
}

// What can still fail an event comes first; after it, what it did stays.
function endEvent() {
  if (shared[LIVES] > 0) settleLives();
  if (shared[CHANGES] > 0 || shared[LIVES] > 0) tables.keepChanges();
  if (added.length > 0) added.length = 0;
  if (marked) keepMarks();
}

function mustEnd(index) {
  return (shared[STOP] !== 0 || shared[TEXT_LENGTH] > MAX_TEXT) && index > 0;
}

function isSkipped(index) {
  if (batch.skipAt >= batch.skip.length || batch.skip[batch.skipAt] !== index) return false;
  batch.skipAt += 1;
  return true;
}

function mayRunNatively() {
  const { column } = only.next[0];
  return native !== null && !mustSettle && !handlerTakesContext && (column === null || column.rows.writesKeys);
}

// The way of most functions, on the built-in plugin: its loop runs events as long as all is usual. One that it leaves in
// the middle is brought to its end here, and one whose text it leaves to JSON.parse is run here.
function runNatively() {
  const { count, skip } = batch;
  const { handler } = only;
  const { column } = only.next[0];
  let i = 0;
  while (i < count) {
    if (mustEnd(i)) return finish(i);
    if (isSkipped(i)) {
      i += 1;
      continue;
    }
    const end = batch.skipAt < skip.length ? skip[batch.skipAt] : count;
    try {
      i = native.runEvents(handler, column === null ? -1 : column.rows.id, i, end, outputLimit, depthLimit, shared[KEY_LIMIT]);
      if (i === end || (shared[SERIAL] === 0 && mustEnd(i))) continue;
      if (shared[SERIAL] === 0) {
        beginEvent(i);
        takeResult(handler(parseEvent(i)));
      } else {
        takeResult(native.takeResult());
      }
      endEvent();
    } catch (error) {
      i = shared[INDEX];
      fail(i, error);
    }
    shared[SERIAL] = 0;
    i += 1;
  }
  return finish(count);
}

// The same for what a handler may need beside its event: a context, promises, or another plugin.
function goOnWithOne(start) {
  const { count } = batch;
  const { handler } = only;
  const { column } = only.next[0];
  const withContext = handlerTakesContext;
  const mayWait = mustSettle || native === null;
  const hasSkips = batch.skip.length > 0;
  for (let i = start; i < count; i++) {
    shared[PROGRESS] = i;
    if (shared[STOP] !== 0 && i > 0) return finish(i);
    if (hasSkips && isSkipped(i)) continue;
    beginEvent(i);
    try {
      const event = batch.parsed === null ? parseEvent(i) : batch.take(i);
      let result = withContext ? handler(event, newContext(i)) : handler(event);
      if (mayWait) {
        if (result !== null && typeof result === 'object' && typeof result.then === 'function') {
          if (native === null) {
            waitFor(NativePromise.resolve(result), i, takeResult);
            return undefined;
          }
          result = settle(NativePromise.resolve(result));
        } else if (native !== null) {
          settle(undefined);
        }
      }
      if (shared[LIVES] > 0) settleLives();
      if (result !== undefined && result !== null && column !== null) column.addResult(result);
      if (shared[CHANGES] > 0 || shared[LIVES] > 0) tables.keepChanges();
      if (added.length > 0) added.length = 0;
    } catch (error) {
      fail(i, error);
    }
    shared[SERIAL] = 0;
    if (shared[TEXT_LENGTH] > MAX_TEXT) return finish(i + 1);
  }
  return finish(count);
}

function takeResult(result) {
  const { column } = only.next[0];
  if (shared[LIVES] > 0) settleLives();
  if (result !== undefined && result !== null && column !== null) column.addResult(result);
}

function goOn(start) {
  const { count } = batch;
  for (let i = start; i < count; i++) {
    shared[PROGRESS] = i;
    if (mustEnd(i)) return finish(i);
    if (isSkipped(i)) continue;
    beginEvent(i);
    try {
      const context = newContext(i);
      if (noting) noteTime(timeOf(batch.timestampAt(i), 'context.timestamp'), context);
      const waiting = runSteps(entrySteps, batch.take(i), context);
      if (native !== null) {
        if (mustSettle || waiting !== undefined) settle(waiting);
      } else if (waiting !== undefined) {
        waitFor(waiting, i, nothingMore);
        return undefined;
      }
      endEvent();
    } catch (error) {
      fail(i, error);
    }
    shared[SERIAL] = 0;
  }
  return finish(count);
}

function nothingMore() {}

// On a plugin that runs promise jobs at will: all that the event started ends here, and a rejection nobody handled is
// the event's failure.
function settle(waiting) {
  let value;
  if (waiting === undefined) {
    native.drainJobs();
  } else {
    let settled = 0;
    waiting.then((result) => { settled = 1; value = result; }, (reason) => { settled = 2; value = reason; });
    native.drainJobs();
    if (settled === 0) throw new Error(NEVER_SETTLES);
    if (settled === 2) {
      native.takeRejection();
      throw value;
    }
  }
  const rejected = native.takeRejection();
  if (rejected !== undefined) throw rejected.reason;
  return value;
}

// On any other plugin the loop ends here and goes on in a microtask, once the event's promise has settled.
function waitFor(promise, index, then) {
  const waiting = shared[SERIAL];
  waitingFor = waiting;
  promise.then(
    (result) => {
      if (waitingFor !== waiting) return;
      waitingFor = 0;
      try {
        then(result);
        endEvent();
      } catch (error) {
        fail(index, error);
      }
      goOnAfter(index);
    },
    (error) => {
      if (waitingFor !== waiting) return;
      waitingFor = 0;
      fail(index, error);
      goOnAfter(index);
    },
  );
}

function goOnAfter(index) {
  shared[SERIAL] = 0;
  if (only === null) goOn(index + 1);
  else goOnWithOne(index + 1);
}

// The host found no job left to run: the awaited promise will never settle.
function giveUpWaiting() {
  if (waitingFor === 0) return;
  waitingFor = 0;
  fail(shared[INDEX], new Error(NEVER_SETTLES));
  goOnAfter(shared[INDEX]);
}

function fail(index, error) {
  if (native !== null && mustSettle) {
    // What the event left running must not reach into the next one.
    native.drainJobs();
    native.takeRejection();
  }
  tables.undoAll();
  takeBackOutputs();
  if (marked) forgetMarks();
  const [message, stack] = describeError(error);
  faults.push([index, message, stack, lastTouched()]);
}

function lastTouched() {
  const entry = tables.lastTouched();
  if (entry !== null) return `${entry.owner.name}[${entry.key}]`;
  return lastCollectionOf === shared[SERIAL] ? lastCollection.name : null;
}

function cut(text) {
  return text.length > MAX_ERROR ? `${text.slice(0, MAX_ERROR)}… [cut]` : text;
}

function describeError(error) {
  try {
    if (typeof error === 'object' && error !== null && 'message' in error) {
      const name = typeof error.name === 'string' ? error.name : 'Error';
      let message = typeof error.message === 'string' ? error.message : show(error.message, 1, []);
      if (error instanceof TypeError) message += frozenHint(message);
      const stack = typeof error.stack === 'string' ? userStack(error.stack.slice(0, MAX_ERROR * 2)) : '';
      return [cut(message === '' ? name : `${name}: ${message}`), cut(stack)];
    }
    if (error === null) return ['null was thrown (out of memory does this)', ''];
    return [cut(`${show(error, 1, [])} was thrown`), ''];
  } catch (_nested) {
    return ['an error was thrown that cannot be shown', ''];
  }
}

function finish(processed) {
  shared[PROGRESS] = batch.count; // from here on no single event is to blame
  batch.close();
  const outputs = [];
  const writes = [];
  const columnSections = [];
  const stateSections = [];
  collectOutputs(processed, outputs, columnSections);
  collectWrites(writes, stateSections);
  const header = { processed, outputs, state: writes, faults, logs: logLines };
  if (only === null) collectTime(header);
  const sections = [stringify(header)];
  for (let i = 0; i < columnSections.length; i++) sections.push(columnSections[i]);
  for (let i = 0; i < stateSections.length; i++) sections.push(stateSections[i]);
  sendSections(OP_RESULT, sections);
  clearOutputs();
}
