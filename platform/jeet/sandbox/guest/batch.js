// The batch loop: runs events one after another, each in isolation, and sends the batch's columns to the host.
//
// Promise: an event that fails leaves no trace but its fault and its log lines. The loop goes on in a microtask when an
// event's result is a promise, and ends early when the host raises STOP.

const faults = []; // [index, error, stack, state key]
let entrySteps = [];
let waitingFor = 0; // serial of the event whose promise is awaited, 0 if none
let serials = 0;
let mustSettle = true; // false: the source has nothing that could start a promise job
const NEVER_SETTLES = 'the promise of this event never settles: nothing is left that could resolve it';
const MAX_ERROR = 16384;

const batch = {
  count: 0,
  first: 0,
  offsets: null,
  attempt: 1,
  texts: [],
  parsed: null, // events parsed ahead by a prefetch
  bytes: null,
  keyTexts: null,
  timestamps: null,
  headers: null,
  skip: [],
  skipAt: 0,

  open(sections) {
    const head = parse(decoder.decode(sections[0]));
    this.count = head.count;
    this.first = head.first;
    this.offsets = head.offsets;
    this.attempt = head.attempt;
    this.skip = head.skip;
    this.skipAt = 0;
    this.bytes = sections;
    this.texts = decoder.decode(sections[1]).split('\n');
    this.parsed = null;
    this.keyTexts = null;
    this.timestamps = null;
    this.headers = null;
    return head;
  },

  close() {
    this.texts = [];
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
    if (this.timestamps === null) this.timestamps = decoder.decode(this.bytes[3]).split('\n');
    return +this.timestamps[i];
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

  // The event as a value, for looking at only: its own turn parses it afresh or takes this one over.
  valueAt(i) {
    if (i === running.index) return parse(this.texts[i]);
    if (this.parsed === null) this.parsed = new Map();
    let value = this.parsed.get(i);
    if (value === undefined) {
      value = parse(this.texts[i]);
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
    return parse(this.texts[i]);
  },
};

function runBatch(sections) {
  const head = batch.open(sections);
  running.time = head.now;
  shared[STOP] = 0;
  shared[TIME] = head.now;
  shared[PROGRESS] = 0;
  faults.length = 0;
  logLines.length = 0;
  batchLogUsed = 0;
  beginStateBatch(head.number, head.committed, head.now);
  goOn(0);
}

function beginEvent(index) {
  serials += 1;
  running.serial = serials;
  running.index = index;
  running.time = shared[TIME];
  running.exact = false;
  running.collection = null;
}

function endEvent() {
  if (lives.length > 0) settleLives();
  if (undone.length > 0 || lives.length > 0) keepChanges();
  added.length = 0;
}

function goOn(start) {
  const { count, texts, skip } = batch;
  const steps = entrySteps;
  const only = steps.length === 1 && steps[0].kind === 0 && steps[0].next.length === 1 && steps[0].next[0].kind === 4 ? steps[0] : null;
  const handler = only === null ? null : only.handler;
  const column = only === null ? null : only.next[0].column;
  for (let i = start; i < count; i++) {
    shared[PROGRESS] = i;
    if (shared[STOP] !== 0 && i > start) return finish(i);
    if (batch.skipAt < skip.length && skip[batch.skipAt] === i) {
      batch.skipAt += 1;
      continue;
    }
    beginEvent(i);
    try {
      const event = batch.parsed === null ? parse(texts[i]) : batch.take(i);
      let waiting;
      if (only !== null) {
        const result = handler(event, newContext(i));
        if (result !== undefined && result !== null) {
          if (typeof result === 'object' && typeof result.then === 'function') {
            waiting = NativePromise.resolve(result).then((settled) => afterStep(only, event, settled, null));
          } else if (column !== null) {
            column.add(result, undefined, 'the result');
          }
        }
      } else {
        waiting = runSteps(steps, event, newContext(i));
      }
      if (native === null) {
        if (waiting !== undefined) {
          waitFor(waiting, i);
          return undefined;
        }
      } else if (mustSettle) {
        settle(waiting);
      }
      endEvent();
    } catch (error) {
      fail(i, error);
    }
    running.serial = 0;
  }
  return finish(count);
}

// On a plugin that runs promise jobs at will: all that the event started ends here, and a rejection nobody handled is
// the event's failure.
function settle(waiting) {
  if (waiting === undefined) {
    native.drainJobs();
  } else {
    let state = 0;
    let reason;
    waiting.then(() => { state = 1; }, (error) => { state = 2; reason = error; });
    native.drainJobs();
    if (state === 0) throw new Error(NEVER_SETTLES);
    if (state === 2) {
      native.takeRejection();
      throw reason;
    }
  }
  const rejected = native.takeRejection();
  if (rejected !== undefined) throw rejected.reason;
}

function waitFor(promise, index) {
  const { serial } = running;
  waitingFor = serial;
  promise.then(
    () => {
      if (waitingFor !== serial) return;
      waitingFor = 0;
      try {
        endEvent();
      } catch (error) {
        fail(index, error);
      }
      running.serial = 0;
      goOn(index + 1);
    },
    (error) => {
      if (waitingFor !== serial) return;
      waitingFor = 0;
      fail(index, error);
      running.serial = 0;
      goOn(index + 1);
    },
  );
}

// The host found no job left to run: the awaited promise will never settle.
function giveUpWaiting() {
  if (waitingFor === 0) return;
  waitingFor = 0;
  const { index } = running;
  fail(index, new Error(NEVER_SETTLES));
  running.serial = 0;
  goOn(index + 1);
}

function fail(index, error) {
  if (native !== null && mustSettle) {
    // What the event left running must not reach into the next one.
    native.drainJobs();
    native.takeRejection();
  }
  const key = running.collection === null ? null : running.key === '' ? `${running.collection.name}` : `${running.collection.name}[${running.key}]`;
  undoAll();
  takeBackOutputs();
  const [message, stack] = describeError(error);
  faults.push([index, message, stack, key]);
}

function cut(text) {
  return text.length > MAX_ERROR ? `${text.slice(0, MAX_ERROR)}… [cut]` : text;
}

function describeError(error) {
  try {
    if (typeof error === 'object' && error !== null && 'message' in error) {
      const name = typeof error.name === 'string' ? error.name : 'Error';
      const message = typeof error.message === 'string' ? error.message : show(error.message, 1, []);
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
  const outputs = [];
  const writes = [];
  const columnSections = [];
  const stateSections = [];
  collectOutputs(processed, outputs, columnSections);
  collectWrites(writes, stateSections);
  const header = { processed, outputs, state: writes, faults, logs: logLines };
  const sections = [stringify(header)];
  for (let i = 0; i < columnSections.length; i++) sections.push(columnSections[i]);
  for (let i = 0; i < stateSections.length; i++) sections.push(stateSections[i]);
  sendSections(OP_RESULT, sections);
  batch.close();
}
