// Joins: of a stream with a table, and of two streams within a bound of event time.
//
// Promise: each pair of one key whose times differ by at most `within` is given to the handler once, when its later half
// arrives; of a left join, each left item without a partner once, with null, when the watermark says that none can come any
// more. What the watermark has passed by more than `within` meets nobody, whether or not it has been cleaned up.

class TableJoin {
  constructor(node, made) {
    this.name = node.name;
    this.table = nodes[node.inputs[1]].collection;
    this.left = node.kind === 'left';
    this.handler = made.join;
    this.next = null;
  }

  run(item, context) {
    const key = keyOfEvent(this.name);
    const row = storeOf(this.table)[key];
    if (row === undefined && !this.left) return undefined;
    const found = row === undefined ? null : copyOf(row, this.name);
    return after(this.handler(item, found, context), (result) => giveOn(this.next, result, context));
  }
}

// Items lie in buckets as long as `within`, `<ISO start>|<key>` → [{ at, value, matched? }] for each side, so that an item's
// partners are in three buckets. A timer a bucket cleans it up; those of a left join's left side run sooner, for the first
// item still without a partner.
class StreamJoin {
  constructor(node, made, behind) {
    this.name = node.name;
    this.left = node.kind === 'left';
    this.within = node.within_ms;
    this.size = node.within_ms > 0 ? node.within_ms : 1;
    this.keeps = node.within_ms + behind; // an item can be met as long as the watermark is at most this past it
    this.time = made.time;
    this.handler = made.join;
    this.collections = node.collections;
    this.lateTo = lateColumn(node.late_to);
    this.next = null;
    this.likely = likelyPlaces(this.name, this.size, this.time, (name) => +name.slice(name.indexOf(' ')));
  }

  store(side) {
    return storeOf(this.collections[side], this.likely);
  }

  bucketOf(at) {
    return floor(at / this.size) * this.size;
  }

  run(side, item, context) {
    const key = keyOfEvent(this.name);
    return withTime(this.time, item, context, `${this.name}: time`, (at) => {
      noteTime(at, context);
      if (at + this.keeps < watermark) {
        noteLate(
          this.lateTo,
          item,
          `late for ${this.name}: at ${isoOf(at)}, more than within before the watermark ${isoOf(watermark)};` +
          ' give the join a longer delay or within, or a lateTo stream',
        );
        return undefined;
      }
      const partners = this.partnersOf(side, key, at);
      this.keep(side, key, at, item, partners.length > 0);
      return each(partners, 0, (partner) => {
        const mine = partners.length > 1 ? copyOf(item, this.name) : item;
        const theirs = copyOf(partner.value, this.name);
        const time = partner.at > at ? partner.at : at;
        return this.meet(side === 0 ? mine : theirs, side === 0 ? theirs : mine, time, context);
      });
    });
  }

  partnersOf(side, key, at) {
    const store = this.store(1 - side);
    const marks = this.left && side === 1;
    const found = [];
    const last = this.bucketOf(at + this.within);
    for (let start = this.bucketOf(at - this.within); start <= last; start += this.size) {
      const bucket = store[placeOf(start, key)];
      if (bucket === undefined) continue;
      for (let i = 0; i < bucket.length; i++) {
        const item = bucket[i];
        if (item.at < at - this.within || item.at > at + this.within || item.at + this.keeps < watermark) continue;
        if (marks) item.matched = true;
        found.push(item);
      }
    }
    return found.sort((a, b) => a.at - b.at);
  }

  keep(side, key, at, item, matched) {
    const store = this.store(side);
    const start = this.bucketOf(at);
    const place = placeOf(start, key);
    const bucket = store[place] || [];
    const dueBefore = bucket.length === 0 ? null : this.dueOf(side, start, bucket);
    const value = copyOf(item, this.name);
    bucket.push(this.left && side === 0 ? { at, value, matched } : { at, value });
    store[place] = bucket;
    const due = this.dueOf(side, start, bucket);
    if (due !== dueBefore) setTimer(this.name, key, `${side === 0 ? 'left' : 'right'} ${start}`, due, false);
  }

  // When a bucket's timer must fire.
  dueOf(side, start, bucket) {
    let due = start + this.size + this.keeps;
    if (this.left && side === 0) {
      for (let i = 0; i < bucket.length; i++) {
        const { at, matched } = bucket[i];
        if (!matched && at + this.keeps + 1 < due) due = at + this.keeps + 1;
      }
    }
    return clampTime(due);
  }

  fire(name, key, at, context) {
    const [sideName, startText] = name.split(' ');
    const side = sideName === 'left' ? 0 : 1;
    const start = +startText;
    const store = this.store(side);
    const place = placeOf(start, key);
    const bucket = store[place];
    if (bucket === undefined) return undefined;
    const gone = bucket.filter((item) => clampTime(item.at + this.keeps + 1) <= at);
    const kept = bucket.filter((item) => clampTime(item.at + this.keeps + 1) > at);
    if (kept.length === 0) {
      delete store[place];
    } else {
      store[place] = kept;
      setTimer(this.name, key, name, this.dueOf(side, start, kept), false);
    }
    if (!this.left || side === 1) return undefined;
    const alone = gone.filter((item) => !item.matched).sort((a, b) => a.at - b.at);
    return each(alone, 0, (item) => this.meet(item.value, null, item.at, context));
  }

  meet(left, right, time, context) {
    const then = contextAt(context, time);
    return after(this.handler(left, right, then), (result) => giveOn(this.next, result, then));
  }
}

// A stream join as one of its inputs sees it.
class JoinSide {
  constructor(join, side) {
    this.join = join;
    this.side = side;
  }

  run(item, context) {
    return this.join.run(this.side, item, context);
  }
}

function giveOn(next, result, context) {
  return result === undefined || result === null ? undefined : runSteps(next, result, context);
}
