// Timers: set, moved and cancelled by events, kept by the host with the batch, and run as events of their own when due.

const eventTimers = []; // [operator, key, name, at or null, wall] of the running event
const batchTimers = new Map(); // the last word on each, of events that have ended
const timerOperators = new Map(); // name → the operator of this stage that may have timers
let userOperator = null; // the stage's first onTimer: its name is that of all timers of user code

function setTimer(operator, key, name, at, wall) {
  if (eventTimers.length >= outputsPerEvent) {
    throw new RangeError(`an event may set at most ${outputsPerEvent} timers (outputs_per_event)`);
  }
  eventTimers.push([operator, key, name, at, wall]);
  marked = true;
}

function keepTimers() {
  for (let i = 0; i < eventTimers.length; i++) {
    const timer = eventTimers[i];
    batchTimers.set(`${timer[0]}|${timer[1].length}|${timer[1]}${timer[2]}`, timer);
  }
}

// context.timer: for the event's key, by name.
function setUserTimer(context, name, options) {
  if (typeof name !== 'string' || name === '') throw new TypeError('context.timer takes a name first');
  if (userOperator === null) {
    throw new TypeError('context.timer was called, but nothing would run for it: add stream.onTimer to the stream it is called on');
  }
  checkKey(name, 'the name of a timer');
  const key = keyOfEvent('context.timer');
  if (options === null) {
    setTimer(userOperator, key, name, null, false);
    return;
  }
  const { at, after: later, clock = 'wall' } = optionsOf('context.timer', options, ['at', 'after', 'clock']);
  if (clock !== 'wall' && clock !== 'event') {
    throw new TypeError(`context.timer: clock is ${show(clock, 1, [])}: there are 'wall' and 'event'`);
  }
  if ((at === undefined) === (later === undefined)) {
    throw new TypeError("context.timer takes { at: time } or { after: '5m' }, or null to cancel");
  }
  const ms = at !== undefined
    ? timeOf(at, 'context.timer: at')
    : clampTime((clock === 'wall' ? now() : floor(context.timestamp)) + durationOf(later, 'context.timer: after'));
  setTimer(userOperator, key, name, ms, clock === 'wall');
}

// Where timers that are due enter: each runs what set it.
class TimerEntry {
  run(timer, context) {
    const { operator, name, wall } = timer;
    const at = batch.timestampAt(shared[INDEX]);
    // To what follows, all timers before this one have run, and none after it.
    watermark = wall || at - 1 > taskWatermark ? taskWatermark : at - 1;
    const owner = timerOperators.get(operator);
    if (owner === undefined) {
      throw new Error(`this version has no operator ${stringify(operator)}, which set the timer`);
    }
    return owner.fire(name, keyOfEvent('a timer'), at, context);
  }
}

class UserTimers {
  constructor() {
    this.steps = []; // of each onTimer of the stage
  }

  fire(name, _key, _at, context) {
    return each(this.steps, 0, (step) => after(step.handler(name, context), (result) => afterStep(step, null, result, context)));
  }
}
