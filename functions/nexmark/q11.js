// Takes Nexmark's events (bench/nexmark.py); emits how often each bidder bid in a session, which ends after ten quiet seconds.
export const config = { source: 'nexmark', sink: 'nexmark_q11' };

stream
  .filter(event => event.type === 'bid')
  .map(({ bidder, dateTime }) => ({ bidder, dateTime }))
  .keyBy('bidder')
  .window({ session: '10s', time: 'dateTime', delay: '5s' })
  .count()
  .map(({ key, start, end, value }) => ({ bidder: Number(key), bids: value, start, end }));
