// Takes flights { scheduled, dep_delay, origin, … }; emits for each day the ten minutes in which most left an airport.
// scheduled is when it was to leave; dep_delay is in minutes, and null for flights that never left.
export const config = { source: 'flights', sink: 'busiest_minutes' };

// Most flights first; then the earlier minute, then the airports by name.
function order(a, b) {
  return b.flights - a.flights || (a.minute + a.origin < b.minute + b.origin ? -1 : 1);
}

stream
  .filter(flight => flight.dep_delay !== null)
  .map(({ origin, scheduled, dep_delay }) => ({ origin, left: Date.parse(scheduled) + dep_delay * 60_000 }))
  .keyBy('origin')
  // A flight is published when it is due, but counts when it leaves, up to a day later.
  .window({ tumbling: '1m', time: 'left', delay: '1d' })
  .count()
  .map(({ key, start, value }) => ({ origin: key, minute: new Date(start).toISOString(), flights: value }))
  .keyBy(({ minute }) => minute.slice(0, 10), { name: 'days' })
  .window({ tumbling: '1d' })
  .aggregate({ init: () => [], add: (top, minute) => [...top, minute].sort(order).slice(0, 10) })
  .map(({ key, value }) => ({ day: key, minutes: value }));
