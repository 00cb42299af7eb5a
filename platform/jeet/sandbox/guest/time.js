// Time as an event sees it. Date.now() and new Date() give its processing time, which stands still while it runs; event time
// is the items' own, and the watermark says up to where all of it is believed to have come.
//
// Promise: what an event that fails has said of time, timers and lateness is forgotten with it. Whether an event is late is
// judged by the watermark before it, as it runs on within a batch: where batches end makes no difference.

let deterministic = true; // config.deterministic: false gives the clock and other random numbers in each run
let timeSerial = 0;
let timeOfEvent = 0;
let timeLooks = 0;
const MAX_LOOKS = 1000; // who looks more often waits for the clock to move: for that one it runs on

function now() {
  if (!deterministic || shared[SERIAL] === 0) return NativeDate.now();
  if (timeSerial !== shared[SERIAL]) {
    timeOfEvent = floor(shared[TIME]);
    timeSerial = shared[SERIAL];
    timeLooks = 0;
  }
  timeLooks += 1;
  if (timeLooks <= MAX_LOOKS) return timeOfEvent;
  const running = NativeDate.now();
  return running > timeOfEvent ? running : timeOfEvent;
}

function replaceDate() {
  function Date(...parts) {
    if (new.target === undefined) return new NativeDate(now()).toString();
    return Reflect.construct(NativeDate, parts.length === 0 ? [now()] : parts, new.target);
  }
  const { UTC, prototype } = NativeDate;
  const own = { now, parse: NativeDate.parse, UTC };
  defineProperty(Date, 'length', { value: 7 });
  defineProperty(Date, 'prototype', { value: prototype, writable: false });
  for (const name of ['now', 'parse', 'UTC']) defineProperty(Date, name, { value: own[name], writable: true, configurable: true });
  defineProperty(prototype, 'constructor', { value: Date, writable: true, configurable: true });
  globalThis.Date = Date;
}

let raises = false; // the events of this batch make the watermark of their input
let delay = 0;
let taskWatermark = -Infinity; // as the host gave it
let bound = Infinity; // what other inputs hold the watermark to
let highest = -Infinity; // event time seen in this input, by events that have ended
let watermark = -Infinity; // running

// What the running event has said so far.
let marked = false; // anything at all
let eventHighest = -Infinity;
let eventLate = 0;
let eventLateText = null;

const lateEvents = []; // [index, message], for the dead letters
let lateCount = 0; // those that went to a stream of their own too

function beginTime(head) {
  raises = false;
  watermark = taskWatermark = typeof head.watermark === 'number' ? head.watermark : -Infinity;
  bound = typeof head.bound === 'number' ? head.bound : Infinity;
  highest = typeof head.highest === 'number' ? head.highest : -Infinity;
  lateEvents.length = 0;
  lateCount = 0;
  batchTimers.clear();
  if (!spec.plan.timed || batch.timers) return;
  const entered = spec.plan.inputs[batch.input];
  if (entered.internal || entered.table) return;
  raises = true;
  delay = spec.plan.delay_ms;
  raiseWatermark();
}

function raiseWatermark() {
  const reached = highest - delay < bound ? highest - delay : bound;
  if (reached > watermark) watermark = reached;
}

// An item's event time, as the input's events bring it: results of windows and joins do not count.
function noteTime(ms, context) {
  if (!raises || context[TIME_AT] !== undefined || ms <= eventHighest) return;
  eventHighest = ms;
  marked = true;
}

function noteLate(column, item, message) {
  if (column !== null) column.add(item, undefined, 'a late event');
  else if (eventLateText === null) eventLateText = message;
  eventLate += 1;
  marked = true;
}

function keepMarks() {
  if (eventHighest > highest) {
    highest = eventHighest;
    raiseWatermark();
  }
  if (eventLateText !== null) lateEvents.push([shared[INDEX], eventLateText]);
  lateCount += eventLate;
  keepTimers();
  forgetMarks();
}

function forgetMarks() {
  eventHighest = -Infinity;
  eventLate = 0;
  eventLateText = null;
  eventTimers.length = 0;
  marked = false;
}

function collectTime(header) {
  if (batchTimers.size > 0) header.timers = Array.from(batchTimers.values());
  if (lateCount > 0) {
    header.late = lateEvents;
    header.late_count = lateCount;
  }
  if (raises && highest > -Infinity) header.highest = highest;
}

function clampTime(ms) {
  return ms < MAX_TIME_MS ? ms : MAX_TIME_MS;
}

const isoTexts = new Map(); // short-lived cache of window starts

function isoOf(ms) {
  let text = isoTexts.get(ms);
  if (text === undefined) {
    text = new NativeDate(ms).toISOString();
    if (isoTexts.size >= 1000) isoTexts.clear();
    isoTexts.set(ms, text);
  }
  return text;
}

// The item's event time: what `time` gives, else the time it came with. Goes on with whole milliseconds.
function withTime(time, item, context, where, go) {
  if (time === null) return go(timeOf(context.timestamp, 'context.timestamp'));
  return after(time(item, context), (given) => go(timeOf(given, where)));
}
