// Windows over event time: tumbling, hopping and session ones.
//
// Promise: a window takes every event whose time it covers until the running watermark has passed its end and grace, and no
// event after that; its result goes on exactly once, when its timer fires. A window that is closed by the watermark but whose
// timer has not fired yet takes nothing more, so the length of batches shows in no result.
//
// State: `<ISO start>|<key>` → the accumulator; for sessions key → [{ start, end, value }], by start. A timer for each window
// by its start, for sessions one a key at the first end.

class Window {
  constructor(node, made, behind) {
    const { window, how } = node;
    this.name = node.name;
    this.isSession = window.kind === 'session';
    this.size = this.isSession ? window.gap_ms : window.size_ms;
    this.every = window.kind === 'hopping' ? window.every_ms : window.size_ms;
    // What follows other windows of this stage closes after them.
    this.grace = window.grace_ms + behind;
    this.emits = window.emit !== 'close';
    this.closes = window.emit !== 'change';
    this.marks = window.emit === 'both';
    this.time = made.time;
    this.fold = foldOf(how, made.handler, node.name);
    this.merge = this.isSession ? mergeOf(how, made.handler, node.name) : null;
    this.lateTo = lateColumn(window.late_to);
    this.next = null;
    this.likely = likelyPlaces(this.name, this.every, this.time, (name) => +name);
  }

  get store() {
    return this.isSession ? storeOf(this.name) : storeOf(this.name, this.likely);
  }

  closesAt(end) {
    return clampTime(end + this.grace);
  }

  run(item, context) {
    const key = keyOfEvent(this.name);
    return withTime(this.time, item, context, `${this.name}: time`, (at) => {
      noteTime(at, context);
      return this.isSession ? this.intoSession(key, at, item, context) : this.intoWindows(key, at, item, context);
    });
  }

  intoWindows(key, at, item, context) {
    const last = floor(at / this.every) * this.every;
    if (this.closesAt(last + this.size) <= watermark) return this.late(item, at, last + this.size);
    if (this.every === this.size) return this.into(last, key, item, context);
    const open = [];
    for (let start = last; start > at - this.size && this.closesAt(start + this.size) > watermark; start -= this.every) open.push(start);
    return each(open.reverse(), 0, (start) => this.into(start, key, item, context));
  }

  into(start, key, item, context) {
    const { store } = this;
    const place = placeOf(start, key);
    const before = store[place];
    return after(this.fold(before, item, context), (value) => {
      store[place] = value;
      if (before === undefined) setTimer(this.name, key, `${start}`, this.closesAt(start + this.size), false);
      return this.emits ? this.goOn(key, start, start + this.size, copyOf(value, this.name), false, context) : undefined;
    });
  }

  intoSession(key, at, item, context) {
    const { store } = this;
    const sessions = store[key] || [];
    const kept = [];
    const joined = [];
    let start = at;
    let end = at + this.size;
    for (let i = 0; i < sessions.length; i++) {
      const session = sessions[i];
      const meets = session.start < at + this.size && at < session.end && this.closesAt(session.end) > watermark;
      if (!meets) {
        kept.push(session);
        continue;
      }
      joined.push(session);
      if (session.start < start) start = session.start;
      if (session.end > end) end = session.end;
    }
    if (joined.length === 0 && this.closesAt(end) <= watermark) return this.late(item, at, end);
    return after(this.mergeAll(joined, 1, joined.length > 0 ? joined[0].value : undefined, context), (before) =>
      after(this.fold(before, item, context), (value) => {
        const dueBefore = firstEnd(sessions);
        kept.push({ start, end, value });
        kept.sort((a, b) => a.start - b.start);
        store[key] = kept;
        const due = firstEnd(kept);
        if (due !== dueBefore) setTimer(this.name, key, '', this.closesAt(due), false);
        return this.emits ? this.goOn(key, start, end, copyOf(value, this.name), false, context) : undefined;
      }));
  }

  mergeAll(sessions, from, before, context) {
    if (from >= sessions.length) return before;
    return after(this.merge(before, sessions[from].value, context), (both) => this.mergeAll(sessions, from + 1, both, context));
  }

  late(item, at, end) {
    const what = this.isSession ? 'its session' : 'its last window';
    noteLate(
      this.lateTo,
      item,
      `late for ${this.name}: at ${isoOf(at)}, and ${what} up to ${isoOf(end)} had closed by the watermark ${isoOf(watermark)};` +
      ' give the window a longer grace or delay, or a lateTo stream',
    );
    return undefined;
  }

  // Its timer is due: the windows that end are given on and taken out of state.
  fire(name, key, at, context) {
    const { store } = this;
    if (!this.isSession) {
      const start = +name;
      const place = placeOf(start, key);
      const value = store[place];
      if (value === undefined) return undefined;
      delete store[place];
      return this.closes ? this.goOn(key, start, start + this.size, value, true, context) : undefined;
    }
    const sessions = store[key];
    if (sessions === undefined) return undefined;
    const closed = sessions.filter(({ end }) => this.closesAt(end) <= at);
    const open = sessions.filter(({ end }) => this.closesAt(end) > at);
    if (open.length === 0) {
      delete store[key];
    } else {
      store[key] = open;
      setTimer(this.name, key, '', this.closesAt(firstEnd(open)), false);
    }
    if (!this.closes) return undefined;
    return each(closed, 0, ({ start, end, value }) => this.goOn(key, start, end, value, true, context));
  }

  goOn(key, start, end, value, final, context) {
    const result = this.marks ? { key, start, end, value, final } : { key, start, end, value };
    return runSteps(this.next, result, contextAt(context, end - 1));
  }
}

function firstEnd(sessions) {
  let first = Infinity;
  for (let i = 0; i < sessions.length; i++) if (sessions[i].end < first) first = sessions[i].end;
  return first;
}

function lateColumn(name) {
  if (name === undefined) return null;
  const column = columnsByName.get(name);
  if (column === undefined) throw new InternalFault(`stream ${name} is not among the declared outputs`);
  return column;
}
